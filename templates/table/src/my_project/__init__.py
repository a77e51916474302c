"""My project."""
