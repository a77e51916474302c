"""Training, processing and transform jobs: from inputs in S3 through a container to results in S3.

``job`` is what all kinds share (states, logs, stop, credentials). ``training_job``,
``processing_job`` and ``transform_job`` are the kinds. ``transfers`` and ``job_files`` move data in
and out and stay within the job's own folders. ``failure_reason`` builds FailureReason in
SageMaker's words. To add a kind, write a module with a subclass of ``job.Job``.
"""
