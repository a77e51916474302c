"""The transform step: score further records with the registered model, in a processing job.

``step`` declares it. ``job`` reads records with the shard step's readers and responds as the
endpoint does. ``settings`` is used by both. The job imports no SDK, boto3 or pipelines.
"""
