"""Register the model; no job of ours runs, since the service creates the model package itself."""
