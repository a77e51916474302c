"""What moto answers: IAM, STS, SQS, SNS, KMS, ECR, EC2, CloudFormation and a few more, in memory.

``moto_operations`` is the one list of operations that may be answered; everything else is refused
by name. ``stack_resources`` are what a CloudFormation stack may create, ``own_role`` the role of
the session.
"""
