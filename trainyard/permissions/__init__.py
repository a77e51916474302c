"""Least privilege, derived: what the roles around a pipeline need, and nothing else."""
