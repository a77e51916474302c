"""Defaults that save a workload code (``training.workloads.simple``): scores, operations,
baseline.
"""
