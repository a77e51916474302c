"""Runs a job's nodes as processes of this machine."""
