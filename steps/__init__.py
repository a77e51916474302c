"""The steps of the pipeline, one folder each.

config.py   the step's settings in a recipe (no SDK, no torch)
step.py     how the step is declared to SageMaker
job.py      what runs inside the step's container
"""
