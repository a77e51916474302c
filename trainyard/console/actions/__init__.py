"""Actions that change something. Every module in this folder is imported.

A module has a function under ``@action(name)`` that proposes an action on the thing named by the
address. An action is carried out only after the user has seen the proposal, and only while the
state that it rests on is still the one shown.
"""
