"""Training, processing and transform jobs: the container contract, from S3 in to S3 out.

``job`` is what all kinds share (states, logs, stop, credentials), ``training_job`` and
``processing_job`` the rest of each; ``transfers`` and ``job_files`` bring data in and out beneath
the job's own tree; ``failure_reason`` has SageMaker's words. To add a kind: a module that derives
from ``job.Job``.
"""
