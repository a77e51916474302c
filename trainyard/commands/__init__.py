"""The verbs of ``trainyard``: each module is one, and its function ``main`` is what it does.

The first line of a module's docstring is what the list of verbs says of it.
"""
