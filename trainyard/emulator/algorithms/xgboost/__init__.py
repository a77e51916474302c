"""The XGBoost algorithm, as AWS's sagemaker-xgboost images run it if no script is given.

It is modelled on github.com/aws/sagemaker-xgboost-container (Apache-2.0), tags v1.0-1 to v3.0-5.
The ``xgboost`` of the job's interpreter trains the trees, whatever version the image names.
"""
