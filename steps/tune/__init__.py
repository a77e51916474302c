"""Step that searches hyperparameters: a tuning job of the train step's own trainings."""
