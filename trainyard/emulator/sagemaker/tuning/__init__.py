"""Hyperparameter tuning jobs: the search space, the strategies, and the training jobs.

``tuning_request`` refuses what AWS refuses, ``tuning_job`` starts trainings and stops early ones by
``objective_curves``, ``search_strategies`` proposes values (Bayesian by optuna), ``tuning_api``
answers.
"""
