"""Search hyperparameters: a tuning job of the train step's own trainings.

``config`` has ranges and strategy, ``step`` builds SageMaker's request and hands the best training
on, ``start_drivers`` makes AWS's drivers the program, since a tuning job has no entry point.
"""
