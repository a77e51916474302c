"""Describe a data set or a model's predictions, and check whether later ones still resemble them.

The files are those of SageMaker Model Monitor (developer guide, "Schema for Statistics", "Schema
for Constraints", "Schema for Violations"): statistics.json, constraints.json and
constraint_violations.json. AWS's analyser is an image without published source; this is our own
implementation, which needs only the standard library and NumPy, so that any job can include it.
``python -m trainyard.quality.job`` implements the container contract of
``sagemaker-model-monitor-analyzer``.
"""
