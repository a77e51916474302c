"""Binary classification of table rows: embedded categories, normalised numbers, an MLP."""
