"""Local files in the place of data that a pipeline finds on AWS: trainyard run --put s3://b/k=FILE.

Public buckets (s3://sagemaker-sample-files, s3://sagemaker-example-files-prod-<region>) are not in
the embedded AWS, and nothing is fetched from the internet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common.errors import EmulatorError


@dataclass(frozen=True, slots=True)
class Put:
    """One ``s3://bucket/key=FILE``; of a folder every file, below the key."""

    bucket: str
    key: str
    source: Path

    def files(self) -> Iterator[tuple[Path, str]]:
        """(file, key) of each."""
        if self.source.is_file():
            name = self.source.name if not self.key or self.key.endswith("/") else ""
            yield self.source, f"{self.key}{name}"
            return
        prefix = f"{self.key.rstrip('/')}/" if self.key else ""
        for path in sorted(self.source.rglob("*")):
            if path.is_file():
                yield path, f"{prefix}{path.relative_to(self.source).as_posix()}"


def parsed(text: str) -> Put:
    """The meaning of one ``--put``. Raises :class:`EmulatorError`."""
    address, equals, file = text.partition("=")
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not equals:
        raise EmulatorError(f"--put {text}: expected s3://bucket/key=FILE, e.g. s3://b/a.csv=a.csv")
    source = Path(file).expanduser()
    if not source.exists():
        raise EmulatorError(f"--put {text}: {file} does not exist on this machine")
    return Put(bucket, key, source)


def put(s3: Any, puts: list[Put]) -> Iterator[str]:
    """Uploads them, and makes the buckets; one line for each."""
    for each in puts:
        s3.create_bucket(Bucket=each.bucket)
        count = 0
        for file, key in each.files():
            s3.upload_file(str(file), each.bucket, key)
            count += 1
        yield f"put s3://{each.bucket}/{each.key}: {count} object{'s' * (count != 1)}"


def missed(objects: Any) -> list[str]:
    """What was asked for in buckets that are not here, as lines for people."""
    asked = [found for found in objects.missed if not objects.has_bucket(found[0])]
    names = [f"s3://{bucket}/{key}" if key else f"s3://{bucket}" for bucket, key in asked]
    if not names:
        return []
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    hint = f"put what it needs there: trainyard run --put {names[0]}=FILE_OR_FOLDER -- ..."
    return [f"not in this AWS, which has no public buckets: {shown}", hint]
