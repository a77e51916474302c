"""The language of a pipeline definition: what its JSON means, whoever reads it.

The emulator executes by it, ``validate`` and ``plan`` check by it; it knows none of them.
"""
