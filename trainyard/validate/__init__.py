"""Know before you spend: find the errors in a definition offline.

``all_checks`` runs everything: ``outer_form`` and ``shape_fit`` hold it to AWS's shapes,
``reference_checks`` and ``expression_checks`` to its own names, ``rules/`` to what AWS refuses
later. The emulator's CreatePipeline takes the same findings. To add a rule: a module in ``rules/``.
"""

from trainyard.validate.all_checks import check, refuse_errors
from trainyard.validate.location import Finding

__all__ = ["Finding", "check", "refuse_errors"]
