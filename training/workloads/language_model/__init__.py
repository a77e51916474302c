"""A causal language model of text: decoder-only transformer, rotary positions.

``config`` (light: recipes read it), ``packing`` (no torch: the shard step runs it), ``workload``;
``model`` is the network, ``parallel`` and ``context_parallel`` how its blocks are shared among
ranks.
"""
