"""Infrastructure as code: the stacks and roles that a recipe needs, and their removal.

``infra_templates`` renders the templates of ``infra/*.yaml``; ``roles_stack`` and ``serving_roles``
derive the policies from the definition and the commands; ``removal_plan`` lists what a pipeline
left. If a command calls AWS differently, the derived role changes with it, or its test fails.
"""
