"""Metrics of training jobs as curves, read from a job's growing log and grouped by name."""
