"""S3 over HTTP, in front of :class:`trainyard.emulator.objects.ObjectStore`.

``app.py`` takes a request to the operation that has registered for it in ``routes.py``: a method in
``objects.py`` or ``buckets.py``. ``multipart.py`` holds uploads in progress; ``listing.py`` pages
through keys; ``body.py`` decodes and verifies what a client sends; ``xml.py`` writes what it gets.
"""

from trainyard.emulator.s3.app import S3

__all__ = ["S3"]
