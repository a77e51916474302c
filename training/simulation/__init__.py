"""The memory of a training step on ranks and GPUs that are not here.

The strategy's own code runs, on tensors without contents (torch's FakeTensorMode) and in a process
group of the true world size whose collectives do nothing (torch's ``fake`` backend). What lives
when is counted: no constant is fitted to any measurement.

    world       a rank among many that are not there
    boundaries  what pipeline stages hear of each other
    step        the training step, and what of it is simulated
    kernels     CUDA's kernels where the CPU's keep other tensors for the backward pass
    storages    every allocation and its end, with what it is for
    peak        the moment at which most is alive, by category
    allocator   what torch's caching allocator would have reserved for it
"""
