"""The services that moto provides: IAM, STS, SQS, SNS, KMS, ECR, EC2, CloudFormation and others.

Their data is in memory only. ``moto_operations`` is the one list of the supported operations; all
others are refused by name. ``stack_resources`` contains the resources that a CloudFormation stack
may create in this SageMaker.
"""
