"""Endpoints: a model package's container, started as SageMaker starts it for serving, and asked."""
