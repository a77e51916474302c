"""S3 over HTTP, in front of :class:`trainyard.emulator.objects.ObjectStore`.

``app.py`` routes a request; ``objects.py`` and ``buckets.py`` answer it; ``multipart.py`` holds
uploads in progress; ``listing.py`` pages through keys; ``body.py`` decodes and verifies what a
client sends; ``xml.py`` writes what it gets.
"""

from trainyard.emulator.s3.app import S3

__all__ = ["S3"]
