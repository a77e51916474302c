"""Image classification with a small ResNet; the loader's threads decode and augment.

``config`` (light: recipes read it), ``packing`` (no torch: the shard step runs it), ``workload``;
``pixels`` decodes. The same names are the workload's contract in ``training.workloads``.
"""
