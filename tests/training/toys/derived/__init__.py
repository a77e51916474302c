"""The shipped language model's workload with its own model."""
