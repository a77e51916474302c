"""Simulated weeks of requests, with and without drift, for ``pipelines.endpoint.drift``."""
