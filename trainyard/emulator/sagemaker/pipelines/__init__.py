"""Pipelines and their executions: reading a definition, and running its steps in order."""
