"""One module for each check of the gate, or for each family of them: ``CHECKS`` is its entry.

``conditions.check_table`` finds them. A new check is a module here and its tests.
"""
