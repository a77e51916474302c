"""Image classification with a small ResNet; the loader's threads decode and augment.

``config`` (light, because recipes read it), ``packing`` (no torch, because the shard step runs it),
``workload``; ``pixels`` decodes. The first three are the modules of the workload's contract in
``training.workloads``.
"""
