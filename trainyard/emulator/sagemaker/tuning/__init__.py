"""Hyperparameter tuning jobs: the search space, the strategies, and the training jobs."""
