"""Replacement for the parts of ``sagemaker_containers`` that scripts import in AWS's images.

These are the XGBoost and the scikit-learn images. The package on PyPI cannot be used: its last
release (2.8.6.post2, 2020) fails to import on Python 3.10 and later (``collections.Mapping``) and
pins flask 1.1.1. The names that scripts use behave as in github.com/aws/sagemaker-containers
(Apache-2.0).
"""
