"""Build the train step's Kubernetes manifest for python -m pipelines.export."""
