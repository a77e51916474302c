"""The embedded AWS: one loopback endpoint whose SageMaker really runs the steps.

A room a service, by AWS's name (``sagemaker``, ``s3``, ``iam``, ``logs``, ``cloudwatch``,
``events``, ``lambda_``; ``services`` has what moto answers); ``containers`` runs jobs; ``server``
and ``request_scope`` bring a request to its room. What is answered has happened, all else is
refused by name before anything starts. No SDK, torch or application here.
"""
