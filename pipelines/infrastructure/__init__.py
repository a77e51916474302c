"""Infrastructure as code: the stacks and roles that a recipe needs, and their removal.

``infrastructure`` puts a stack together from ``infra/*.yaml``; ``roles_stack`` and
``serving_roles`` derive the policies from the definition and the verbs; ``removal_plan`` lists what
a pipeline left. A change of a call in a verb shows in the derived role, or its test fails.
"""
