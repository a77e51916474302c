"""Batch transform: S3 objects through a model's container, record by record."""
