"""Runs side by side, as the console reads and shows them."""
