"""The train step as a manifest of Kubernetes: what python -m pipelines.export is made of."""
