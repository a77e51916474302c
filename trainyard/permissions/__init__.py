"""Derive least privilege: what the roles around a pipeline need, and nothing else."""
