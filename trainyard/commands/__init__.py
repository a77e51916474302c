"""The verbs of ``trainyard``: each module is a verb, and its function ``main`` carries it out.

The first line of a module's docstring describes the verb in the list of verbs.
"""
