"""Initial values of a model that is built on meta, before any memory is allocated for weights.

A model on meta is cut into stages, split and sharded as any other; then ``fill`` allocates memory
for this rank's part of it, and writes its part of each tensor's value.

    initial_values  what a tensor begins with; a part of it can be requested
    build_model     a model on meta, whose initial values are recorded
    fill_memory     memory for a model on meta, and the values into it
"""
