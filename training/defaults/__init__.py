"""What a workload need not write (``training.workloads.simple``): scores, operations, baseline."""
