"""For any SageMaker pipeline: an embedded AWS, and tools over a definition or an execution."""
