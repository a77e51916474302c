"""The trained model in its exported form: weights, artifact, and the code that answers requests."""
