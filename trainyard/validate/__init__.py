"""Know before you spend: what is wrong with a definition, found offline."""

from trainyard.validate.all_checks import check, refuse_errors
from trainyard.validate.location import Finding

__all__ = ["Finding", "check", "refuse_errors"]
