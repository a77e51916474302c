"""Turn raw records into shards: read, sort by hash, find duplicates, pack.

``job`` is the program for one instance (``read_object``, ``survey``, ``pack_unit`` in a ``pool`` of
processes); ``ray_program`` runs the same functions as Ray tasks on several instances. ``readers/``
has one module per format. The bytes of a dataset depend only on the records and the recipe; a test
compares them with recorded ones. Nothing here imports torch, the SDK or boto3. Ray is imported
inside functions, so that one instance does not need it.
"""
