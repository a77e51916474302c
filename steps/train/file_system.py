"""File systems that a training job mounts, as a channel or in place of the shards in S3."""

from typing import Literal, Self

from pydantic import Field, model_validator

from steps.config import Section


class FsxLustre(Section):
    """An FSx for Lustre file system whose data repository association mirrors the S3 prefix."""

    file_system_id: str = Field(pattern=r"^fs-[0-9a-f]{8,}$", examples=["fs-0123456789abcdef0"])
    """Id of the file system; it must be reachable from ``aws.vpc``."""

    directory_path: str = Field(pattern=r"^/\S+[^/]$", examples=["/fsx/corpus"])
    """The folder (``/<mount name>/...``) that is associated with ``s3://<bucket>/<prefix>``."""


class FileSystem(FsxLustre):
    """A folder of a file system, which is mounted read-only."""

    type: Literal["FSxLustre", "EFS"]
    """Kind of the file system."""

    directory_path: str = Field(pattern=r"^/\S*$", examples=["/fsx/corpus"])
    """The folder: of FSx for Lustre ``/<mount name>/...``, of EFS any, ``/`` included."""

    @model_validator(mode="after")
    def _has_mount_name(self) -> Self:
        if self.type == "FSxLustre" and not self.directory_path.strip("/"):
            raise ValueError(
                f"directory_path: is {self.directory_path!r}; a path on FSx for Lustre begins with "
                "the mount name, as in /fsx/corpus: aws fsx describe-file-systems shows it"
            )
        return self

    def __str__(self) -> str:
        return f"{self.file_system_id}:{self.directory_path}"
