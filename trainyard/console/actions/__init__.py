"""What changes something, each in a module of its own that is found by being there.

A module has a function under ``@action(name)`` that proposes what would be done about the thing
that the address names. Nothing is done before the person has seen the proposal, and only while what
it rests on is as it was shown.
"""
