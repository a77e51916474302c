"""Predict what a training will need, take and cost, before any of it has run."""
