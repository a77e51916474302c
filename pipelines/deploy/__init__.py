"""Deployment of a pipeline: the upsert lock, the records, the saved plan, the storage."""
