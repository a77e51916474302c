"""Hyperparameter tuning jobs: the search space, the search strategies and the training jobs.

``tuning_request`` refuses what AWS refuses, ``tuning_job`` starts training jobs and stops some
early by ``objective_curves``, ``search_strategies`` proposes values (Bayesian with optuna),
``tuning_results`` evaluates the training jobs, and ``tuning_api`` has the API operations.
"""
