"""Kills the sharding job at random moments, runs it again, and looks for one wrong sample."""
