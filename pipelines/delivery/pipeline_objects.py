"""Upload the objects that a pipeline needs in S3 before it starts, if they are missing there."""

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import Any

from botocore.exceptions import ClientError
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.text import Text

from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.provenance_asset import FOLDER, mask_record_name
from trainyard.aws_clients import read_error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.plan.definition_diff import Change, Diff, diff_definitions
from trainyard.plan.deployed_pipeline import State
from trainyard.plan.plan_display import format_differences
from trainyard.terminal import console
from trainyard.terminal import errors as terminal

AT_ONCE = 10
"""Number of concurrent uploads: as many connections as botocore keeps open
(max_pool_connections).
"""


def ensure_bucket(s3: Any, bucket: str, region: str) -> bool:
    """Create the bucket if it does not exist; return True if it was created.

    Raises:
        ServiceError: the bucket cannot be inspected or created.
    """
    try:
        s3.head_bucket(Bucket=bucket)
        return False
    except ClientError as error:
        # The bucket exists, but a role that may list only some prefixes may not inspect all of it.
        # If it belongs to another account, the listing before the upload will fail.
        if read_error_code(error) == "403":
            return False
        if read_error_code(error) not in ("404", "NoSuchBucket"):
            raise ServiceError(
                f"bucket {bucket}: cannot be used ({read_error_code(error)}): it may belong to "
                "another "
                "account, or this role lacks s3:ListBucket; choose another aws.bucket"
            ) from None
    # us-east-1 is the only region that must not be given as LocationConstraint.
    constraint = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=bucket, **({} if region == "us-east-1" else constraint))
    return True


def upload_changed_files(
    s3: Any, bucket: str, prefix: str, files: Mapping[str, bytes], *, kms_key: str | None = None
) -> int:
    """Upload the files (content by name) that differ from S3; return the number of bytes uploaded.

    An object is left alone if its size is right, and also its ETag if that is an MD5, which it is
    not for objects encrypted with a KMS key. Other objects under ``prefix`` are not deleted. Shows
    a progress bar while uploading.

    Raises:
        ServiceError: the bucket or the prefix cannot be listed or written.
    """
    with service_errors(f"uploading to s3://{bucket}/{prefix}"):
        remote_objects = dict(iter_objects(s3, bucket, prefix))
        wrong = {
            n: body
            for n, body in files.items()
            if not has_same_content(remote_objects.get(n), body, kms_key)
        }
        if wrong:
            _upload_files(s3, bucket, prefix, wrong, kms_key)
    return sum(len(body) for body in wrong.values())


def iter_objects(s3: Any, bucket: str, prefix: str) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield (name under ``prefix``, (bytes, ETag)) of every object there."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    for page in pages:
        for item in page.get("Contents", ()):
            yield item["Key"].removeprefix(f"{prefix}/"), (item["Size"], item["ETag"].strip('"'))


def has_same_content(
    remote_object: tuple[int, str] | None, body: bytes, kms_key: str | None
) -> bool:
    """Return whether a listed object (bytes, ETag) has the content ``body``: by its size, and by
    its ETag if that is an MD5.
    """
    if remote_object is None or remote_object[0] != len(body):
        return False
    # With KMS, or of a multipart upload, an ETag is not an MD5: then only the size is compared.
    is_md5 = kms_key is None and "-" not in remote_object[1]
    return not is_md5 or remote_object[1] == hashlib.md5(body, usedforsecurity=False).hexdigest()


def _upload_files(
    s3: Any, bucket: str, prefix: str, files: Mapping[str, bytes], kms_key: str | None
) -> None:
    """Upload the files concurrently, with a progress bar."""
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    columns = (TextColumn("uploading"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, console=terminal, transient=True, disable=not terminal.is_terminal
    ) as progress:
        task = progress.add_task(prefix, total=sum(map(len, files.values())))

        def put(name: str) -> int:
            """Upload one file; return its size in bytes."""
            s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=files[name], **encryption)
            return len(files[name])

        pool = ThreadPoolExecutor(min(AT_ONCE, len(files)))
        try:
            for future in as_completed([pool.submit(put, name) for name in files]):
                progress.advance(task, future.result())
        finally:  # after an error or an interrupt, no further upload starts
            pool.shutdown(cancel_futures=True)


# Compare the definitions of two environments of a recipe, without calling AWS.

ROOT = "s3://…"
"""Replaces the prefix of all of a pipeline's objects, which differs everywhere or nowhere."""


@dataclass(frozen=True, slots=True)
class EnvironmentComparison:
    """Two environments of a recipe, and what differs in the second one."""

    names: tuple[str, str]
    diff: Diff

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the comparison in plain JSON types."""
        return {"against": self.names[0], "environment": self.names[1], "diff": asdict(self.diff)}

    def show(self) -> None:
        """Print the differences, or that there are none."""
        first_name, second_name = self.names
        console.print(
            f"environment {second_name} against {first_name}", style="bold", highlight=False
        )
        console.print()
        lines = list(format_differences(self.diff)) or [Text("no difference")]
        for line in lines:
            console.print(line, highlight=False)


def compare_environments(before: CompiledPipeline, now: CompiledPipeline) -> EnvironmentComparison:
    """Return what differs in ``now``: name, region, S3 prefix, settings, steps, and the recipe's
    fields that are not in a definition, such as those of the endpoint.
    """
    locations = [
        (definition.name, definition.region, _build_root_uri(definition))
        for definition in (before, now)
    ]
    changes = tuple(
        Change(sign="~", path=path, old=old, new=new)
        for path, old, new in zip(("PipelineName", "Region", "Root"), *locations, strict=True)
        if old != new
    )
    fields = before.recipe_fields, now.recipe_fields
    changes += tuple(
        Change(sign="~" if old and new else "+" if new else "-", path=path, old=old, new=new)
        for path in sorted({*fields[0], *fields[1]})
        if (old := fields[0].get(path)) != (new := fields[1].get(path))
    )
    diff = diff_definitions(_mask_locations(before), _mask_locations(now))
    names = (str(before.environment), str(now.environment))
    return EnvironmentComparison(names, replace(diff, pipeline=(*changes, *diff.pipeline)))


def _build_root_uri(definition: CompiledPipeline) -> str:
    """Return the S3 URI that is the prefix of all of the pipeline's objects."""
    asset = definition.assets[0]
    return f"s3://{asset.bucket}/{asset.prefix.removesuffix(f'/{FOLDER}')}"


def _mask_locations(definition: CompiledPipeline) -> State:
    """Return the definition's state with its S3 prefix and its record's name replaced."""
    # The record names commit and environment, so its own name always differs.
    body = mask_record_name(definition.body).replace(f"{_build_root_uri(definition)}/", f"{ROOT}/")
    return replace(definition.state, definition=body)
