"""Score further records by the registered model, as a processing job.

``step`` declares it, ``job`` reads with the shard step's readers and answers as the endpoint does;
``settings`` is what both know. No SDK, boto3 or pipelines in the job.
"""
