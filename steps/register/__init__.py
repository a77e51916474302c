"""Registering has no job of ours: the service creates the model package itself."""
