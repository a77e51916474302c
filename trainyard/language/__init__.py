"""The language of a pipeline definition: the meaning of its JSON.

The emulator executes by it, ``validate`` and ``plan`` check by it; it knows none of them.
"""
