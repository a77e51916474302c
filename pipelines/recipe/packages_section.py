"""The recipe's section ``packages``: where jobs get the packages that their images lack."""

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from steps.config import Section

CODEARTIFACT = (
    r"^arn:aws[a-z-]*:codeartifact:[a-z0-9-]+:\d{12}:repository/"
    r"[a-z][a-z0-9-]{0,48}[a-z0-9]/[A-Za-z0-9][A-Za-z0-9._-]{1,99}$"
)
"""Pattern of a repository's ARN (API reference, DomainName and RepositoryName)."""
INDEX = r"^https://[^\s@/]+(/[^\s@?#]*)?$"
PythonVersion = Annotated[str, Field(pattern=r"^3\.\d+$", examples=["3.12"])]


class Packages(Section):
    """Where jobs get the Python packages that their images lack; default: pip's own index."""

    index: str | None = None
    """URL of an index (PEP 503) that every job asks instead, as https://pypi.example.com/simple; it
    must admit the jobs without a password."""

    codeartifact: str | None = Field(
        default=None,
        pattern=CODEARTIFACT,
        exclude_if=lambda arn: arn is None,
        examples=["arn:aws:codeartifact:us-east-1:111122223333:repository/my-domain/pypi"],
    )
    """ARN of a CodeArtifact repository that every job asks instead, with a token that its role gets
    it as it starts. Needs the AWS CLI or boto3 in the image."""

    wheelhouse: bool = False
    """Jobs ask no index: ``python -m pipelines.package`` downloads the wheels and uploads them, and
    each job gets its own as a channel. They need no way out of their network."""

    python: tuple[PythonVersion, ...] = ()
    """Python versions that wheels are downloaded for, as "3.12"; default: that of AWS's image. An
    image of your own, and the emulator, may have another."""

    @field_validator("index")
    @classmethod
    def _no_credentials(cls, index: str | None) -> str | None:
        """Refuse an index whose address is not plain https; a password in it is not shown."""
        if index is not None and not re.match(INDEX, index):
            display_index = re.sub(r"//[^/]*@", "//…@", index)
            raise ValueError(
                f"is {display_index!r}; expected https://HOST/PATH without user, password, query "
                "or "
                "fragment: everyone who may describe a job reads its environment"
            )
        return index

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.wheelhouse and (self.index or self.codeartifact):
            source_field = "index" if self.index else "codeartifact"
            raise ValueError(
                f"{source_field}: jobs with a wheelhouse ask no index; remove one of them"
            )
        if self.index and self.codeartifact:
            raise ValueError("index: codeartifact is one, too; remove one of them")
        if self.python and not self.wheelhouse:
            raise ValueError("python: is used with wheelhouse: true only; remove it, or set that")
        return self

    def environment(self, wheels: str) -> Mapping[str, str]:
        """Return pip's settings in a job whose wheels lie in the folder ``wheels``."""
        if self.wheelhouse:
            return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels}
        if self.codeartifact:  # read by AWS's training drivers and steps/container.sh
            return {"CA_REPOSITORY_ARN": self.codeartifact}
        return {"PIP_INDEX_URL": self.index} if self.index else {}
