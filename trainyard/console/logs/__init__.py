"""Logs of jobs in CloudWatch: their streams, their lines, and searches in them."""
