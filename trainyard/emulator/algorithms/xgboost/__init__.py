"""The XGBoost algorithm: what AWS's images sagemaker-xgboost do when no script is given.

The facts are those of github.com/aws/sagemaker-xgboost-container (Apache-2.0), tags v1.0-1 to
v3.0-5; the trees are grown by the ``xgboost`` that the job's interpreter has, whatever version the
image names.
"""
