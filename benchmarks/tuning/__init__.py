"""How good the embedded AWS's hyperparameter search is, where the optimum is known."""
