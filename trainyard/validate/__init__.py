"""Find the errors in a pipeline definition offline, before it costs money.

``all_checks`` runs all checks: ``top_level_structure`` and ``step_request_checks`` compare the
definition with AWS's shapes, ``reference_checks`` and ``expression_checks`` check its references
and expressions, and ``rules/`` find what AWS would refuse later. The emulator's CreatePipeline uses
the same checks. To add a rule, add it to a module in ``rules/``.
"""

from trainyard.validate.all_checks import check_definition, refuse_errors
from trainyard.validate.location import Finding

__all__ = ["Finding", "check_definition", "refuse_errors"]
