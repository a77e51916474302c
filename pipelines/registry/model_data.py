"""Find a model package's files: one archive, or every object below a prefix."""

from collections.abc import Mapping
from typing import Any


def uri_of(container: Mapping[str, Any]) -> str | None:
    """Return the S3 URI of a container's model: of its archive, or of its folder, which ends with
    ``/``.

    A package has either ``ModelDataUrl``, or ``ModelDataSource`` for files that are not compressed
    (API reference, ModelPackageContainerDefinition).
    """
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    if not source:
        return container.get("ModelDataUrl")
    prefix = source.get("S3DataType") == "S3Prefix"
    uri: str = source["S3Uri"]
    return f"{uri.rstrip('/')}/" if prefix else uri
