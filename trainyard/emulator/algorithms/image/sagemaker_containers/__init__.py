"""What scripts import of ``sagemaker_containers`` in AWS's XGBoost and scikit-learn images.

The package on PyPI cannot stand here: its last release (2.8.6.post2, 2020) fails to import on
Python 3.10 and later (``collections.Mapping``) and pins flask 1.1.1. This package behaves as
github.com/aws/sagemaker-containers (Apache-2.0) publishes it, in the names that scripts use.
"""
