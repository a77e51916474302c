"""AWS services other than SageMaker and S3: CloudWatch, EventBridge, Lambda, Logs, moto's."""
