"""Validation rules that know this application's jobs."""
