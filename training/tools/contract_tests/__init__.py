"""Find where a workload breaks its contract (``training.workloads``).

There is one module for each part of the contract (``packing_rules``, ``forward_rules``,
``state_rules`` …). A rule is a function decorated with ``@rule``; rules are checked in the order of
``try_command``. ``contract.Trial`` builds what the rules check in this process; ``trial_rank``
trains in separate processes, one per rank.
"""
