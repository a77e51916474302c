"""S3 over HTTP, in front of :class:`trainyard.emulator.s3.object_store.ObjectStore`.

``s3_dispatch`` finds a request's operation by botocore's model and the method registered for it
(``operation_routes``). The registration lists the parts of a request that the method respects; a
request with other parts is refused. The methods are in ``object_requests``, ``buckets`` and
``s3_dispatch``. ``multipart`` holds uploads in progress, ``list_objects`` pages through keys, and
``upload_body`` decodes and verifies bodies.
"""

from trainyard.emulator.s3.s3_dispatch import S3

__all__ = ["S3"]
