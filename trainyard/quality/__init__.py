"""Describe a data set or a model's predictions, and check whether others still are like that.

The files are those of SageMaker Model Monitor (developer guide, "Schema for Statistics", "Schema
for Constraints", "Schema for Violations"): statistics.json, constraints.json and
constraint_violations.json. AWS's analyser is a closed image; this one is our own, of the standard
library and NumPy, so that any job can carry it. ``python -m trainyard.quality.job`` keeps the
container contract of ``sagemaker-model-monitor-analyzer``.
"""
