"""A causal language model of text: a decoder-only transformer with rotary positions.

``config`` is imported by recipes and ``packing`` by the shard step; neither imports torch.
``workload`` ties all together. ``model`` is the network; ``parallel`` and ``context_parallel``
distribute its blocks and its sequences over ranks.
"""
