"""Rules on what only our recipe makes; importing this package registers them with the others.

One module a rule or family of rules, by ``trainyard.validate.rules.rule``; a new module is found by
itself. A rule reads the definition, never the recipe, so that it holds for what was uploaded. No
torch.
"""

from trainyard.registration import import_modules
from trainyard.validate import check

__all__ = ["check"]

import_modules(__name__, __path__)
