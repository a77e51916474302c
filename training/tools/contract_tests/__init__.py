"""Find where a workload breaks its contract (``training.workloads``), and say where.

One module for each part of the contract (``packing_rules``, ``forward_rules``, ``state_rules`` …);
a rule is a function under ``@rule``, in the order of ``try_command``. ``trial`` builds what the
rules try, on one process; ``trial_rank`` on several.
"""
