"""The embedded AWS: one HTTP endpoint on loopback, whose SageMaker really runs pipeline steps.

Each AWS service has a package with its name, called a room (``sagemaker``, ``s3``, ``iam``,
``logs``, ``cloudwatch``, ``events``, ``lambda_``); ``services`` has the operations that moto
performs. ``containers`` runs jobs. ``server`` and ``request_scope`` route a request to its room. An
operation that succeeds has really been performed; everything else is refused before anything
starts, with an error that names it. Nothing here imports the SDK, torch or an application.
"""
