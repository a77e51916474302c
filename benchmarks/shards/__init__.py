"""Shards and their loader against the limits of the machine and against other libraries."""
