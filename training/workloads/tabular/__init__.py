"""Binary classification of table rows: embedded categories, normalised numbers, an MLP.

``config`` is imported by recipes and ``packing`` by the shard step; neither imports torch.
``workload`` ties all together. ``column_statistics`` are computed on the train split.
``baselines`` are fitted by scikit-learn.
"""
