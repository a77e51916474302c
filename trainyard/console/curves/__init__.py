"""Metrics of training jobs as curves: read from a job's log while it grows, grouped by name."""
