"""The shipped language model's workload with a model of its own."""
