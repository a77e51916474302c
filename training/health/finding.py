"""Something that a check at the start has found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and what to do.

    Attributes:
        sure: it holds whatever the versions of the libraries are, so that ``health_check: stop``
            ends the job.
    """

    what: str
    fix: str
    sure: bool = True

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"
