"""The trained model as it is handed on: weights, artifact, and what answers requests with them."""
