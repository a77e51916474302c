"""AWS services beside SageMaker and S3: CloudWatch, EventBridge, Lambda, Logs, moto's."""
