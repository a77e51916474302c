"""Delivery of a recipe's pipeline: what an upsert checks, saves, uploads and records.

This package has the recipe's plan, the budget, the saved plan, the lock, the records of upserts,
and the upload of the definition's objects to S3. The commands ``pipelines.plan``, ``upsert`` and
``start`` use it.
Nothing here imports torch or the emulator.
"""
