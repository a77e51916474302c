"""Tools for any SageMaker pipeline: an embedded AWS, and checks of definitions and executions."""
