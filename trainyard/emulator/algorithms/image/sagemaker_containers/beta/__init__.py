"""The package around ``framework``."""
