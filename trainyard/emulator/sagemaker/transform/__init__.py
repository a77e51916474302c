"""Batch transform: S3 objects through a model's container, record by record.

``object_transform`` cuts, sends, joins and assembles one object by the request's settings; the job
itself is ``trainyard.emulator.sagemaker.jobs.transform_job``.
"""
