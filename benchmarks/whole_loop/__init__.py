"""Data, pipeline, gate, canary, monitor and back: one loop, offline, under load."""
