"""Know before you spend: what is wrong with a recipe or a definition, found offline."""

from pipelines.validate.checking import check
from pipelines.validate.findings import Finding

__all__ = ["Finding", "check"]
