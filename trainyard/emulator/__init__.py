"""The embedded AWS: one loopback endpoint whose SageMaker really runs the steps."""
