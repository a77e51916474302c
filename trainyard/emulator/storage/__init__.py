"""S3 over HTTP, in front of :class:`trainyard.emulator.storage.object_store.ObjectStore`.

``app.py`` takes a request to the operation that it is by botocore's model (``model.py``) and to
the method that has registered for that operation in ``routes.py``, which also says what of the
request the method heeds: all else is refused. ``objects.py``, ``parts.py``, ``buckets.py``,
``versions.py``, ``tagging.py``, ``acl.py``, ``attributes.py`` and ``settings.py`` answer;
``multipart.py`` holds uploads in progress, ``listing.py`` pages through keys, ``kept.py`` says what
is kept of a write, ``conditions.py`` what it depends on, ``body.py`` decodes and verifies what a
client sends, with ``checksums.py``, and ``xml.py`` writes what it gets.
"""

from trainyard.emulator.storage.s3_dispatch import S3

__all__ = ["S3"]
