"""Know before you spend: what is wrong with a recipe or a definition, found offline."""

from trainyard.validate.checking import check
from trainyard.validate.findings import Finding

__all__ = ["Finding", "check"]
