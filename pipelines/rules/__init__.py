"""Rules about jobs that only our recipe creates; importing this package registers them.

There is one module per rule or family of rules, which use ``trainyard.validate.rules.rule``. New
modules are found automatically. A rule reads the definition, never the recipe, so that it applies
to what was uploaded. Nothing here imports torch.
"""

from trainyard.registration import import_modules
from trainyard.validate import check_definition

__all__ = ["check_definition"]

import_modules(__name__, __path__)
