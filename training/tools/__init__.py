"""Tools that people run beside a training: nothing here is shipped with it, or counts for its
identity (``training.export.shipped_files``).

``try`` and ``contract_tests`` test a workload, ``shapes`` traces a model's shapes for foresight.
"""
