"""Initial values of a model that is built on meta, before any memory is allocated for weights.

A model on meta is cut into stages, split and sharded like any other. Then
``initial_values.materialize_tensors`` allocates memory for this rank's part of it, and
writes its part of each tensor's value.

    build_model     a model on meta, whose initial values are recorded
    recorder        records the operations while the model is built
    replay          runs recorded operations again for a whole tensor
    element_values  computes recorded operations for some elements of a tensor
    element_numbers random numbers of which each depends only on a key and its index
    initial_values  a tensor's initial value, of which any part can be requested; fills a model
"""
