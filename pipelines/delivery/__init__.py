"""Delivery of a recipe's pipeline: what an upsert checks, saves, uploads and records.

The budget, the saved plan, the lock and its records, the objects of the definition in S3. The verbs
``pipelines.plan``, ``upsert`` and ``start`` use it. Nothing here imports torch or the emulator.
"""
