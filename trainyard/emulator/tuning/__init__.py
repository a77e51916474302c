"""Hyperparameter tuning jobs: what is searched, by which strategy, and the jobs that train."""
