"""Finds where a workload breaks its contract (``training.workloads``), and says where."""
