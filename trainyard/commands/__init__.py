"""The verbs of ``trainyard``: each module is a verb, and its function ``main`` runs it.

The first line of a module's docstring describes the verb in the list of verbs.
"""
