"""Endpoints: a model package's container, started for serving as SageMaker does, and its
requests.
"""
