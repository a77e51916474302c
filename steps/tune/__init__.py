"""The tune step: search hyperparameters with a tuning job that starts jobs like the train step's.

``config`` has ranges and strategy. ``step`` builds SageMaker's request and returns the best
training. ``start_drivers`` is the program that starts AWS's drivers, because a tuning job has no
entry point.
"""
