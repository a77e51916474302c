"""The XGBoost algorithm, as AWS's sagemaker-xgboost images run it when no script is given.

The facts are those of github.com/aws/sagemaker-xgboost-container (Apache-2.0), tags v1.0-1 to
v3.0-5. The trees are grown by the ``xgboost`` of the job's interpreter, whatever version the
image names.
"""
