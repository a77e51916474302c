"""Runs side by side: what differs between them, in settings, code and data."""
