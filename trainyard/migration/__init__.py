"""Move a pipeline script from SageMaker's SDK v2 to v3, and prove that it still does the same."""
