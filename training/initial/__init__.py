"""Initial values of a model that is built on meta: there before any memory is taken for weights.

A model on meta is cut into stages, split and sharded as any other; then ``fill`` takes memory for
what this rank holds of it, and writes its part of each tensor's value.

    values   what a tensor begins with, of which a part can be asked for
    parts    which part of a tensor this rank holds
    fill     memory for a model on meta, and the values into it
"""
