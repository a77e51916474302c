"""The language of a pipeline definition: what its JSON means, whoever reads it.

The emulator executes by it, ``pipelines`` validates and plans by it; it knows neither of them.
"""
