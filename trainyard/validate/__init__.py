"""Know before you spend: find the errors in a definition offline."""

from trainyard.validate.all_checks import check, refuse_errors
from trainyard.validate.location import Finding

__all__ = ["Finding", "check", "refuse_errors"]
