"""Batch transform: send S3 objects through a model's container, record by record.

``object_transform`` splits one object, sends its records, and joins and writes the results by the
request's settings. The job itself is ``trainyard.emulator.sagemaker.jobs.transform_job``.
"""
