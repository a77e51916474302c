"""Finds what a workload does not keep of its contract (``training.workloads``), and says where."""
