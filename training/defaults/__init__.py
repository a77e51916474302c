"""Defaults for workloads (``training.workloads.simple``): scores, operations, baseline, requests.

A workload's own method replaces each. They go with the training's code into the artifact.
"""
