"""Whether a search pays, and whether it promotes luck."""
