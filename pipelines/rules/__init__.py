"""Rules on what only our recipe makes; importing this package registers them beside the general
ones.

So the application checks definitions with ``pipelines.rules.check``, never with the general one.
"""

from trainyard.registration import import_modules
from trainyard.validate import check

__all__ = ["check"]

import_modules(__name__, __path__)
