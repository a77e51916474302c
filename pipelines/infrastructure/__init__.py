"""Infrastructure as code: the stacks and roles that a recipe needs, and their removal.

The templates lie in ``infra/``. The verbs ``pipelines.infra``, ``permissions`` and ``teardown`` use
it; a role gets what its steps do and nothing else (``trainyard.permissions``).
"""
