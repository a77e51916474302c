"""Turn raw records into shards: read, sort by hash, find duplicates, pack.

``job`` is the path of one instance (``read_object``, ``survey``, ``pack_unit`` in a ``pool`` of
processes); ``ray_program`` runs the same functions as Ray's tasks on several. ``readers/`` has one
module a format. The bytes of a dataset depend on records and recipe alone: a test compares them
with recorded ones. No torch, SDK or boto3; Ray is imported inside functions, so that one instance
needs none.
"""
