"""Defaults for workloads (``training.workloads.simple``): scores, operations, baseline, requests.

A workload's own method replaces each of them. They are shipped in the artifact with the training's
code.
"""
