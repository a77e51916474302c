"""Trainyard's checkpoints beside torch's DCP."""
