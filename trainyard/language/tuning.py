"""What tools know of a tuning job's request and botocore's model says in prose only."""

EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters that Hyperband takes for MaxResource (HyperbandStrategyConfig)."""
