"""Simulated weeks of requests, with and without drift, for ``pipelines.monitoring.drift``."""
