"""Defaults for workloads (``training.workloads.simple``): scores, operations, baseline."""
