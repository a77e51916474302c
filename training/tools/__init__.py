"""Tools that people run by hand: nothing here is shipped with a training run, or part of its
identity (``training.export.shipped_files``).

``try`` and ``contract_tests`` test a workload; ``shapes`` and ``forward_trace`` find a model's
shapes for ``trainyard.foresight``.
"""
