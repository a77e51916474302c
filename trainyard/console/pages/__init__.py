"""The console's pages. Every module in this folder is imported, and has a Blueprint ``page``."""
