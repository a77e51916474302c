"""Binary classification of table rows: embedded categories, normalised numbers, an MLP.

``config`` (light: recipes read it), ``packing`` (no torch: the shard step runs it), ``workload``;
``column_statistics`` are fitted on the train split, ``baselines`` by scikit-learn.
"""
