"""Actions that change something. Every module in this folder is imported.

A module has a function decorated with ``@register_action(name)`` that returns a proposal of an
action for the resource that the address names. An action is executed only after the user has seen
the proposal, and only if the state that it depends on is still the one that was shown.
"""
