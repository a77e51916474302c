"""The gate's checks, one module for each check or family of checks; ``CHECKS`` is its entry.

``conditions.check_table`` finds them. A new check is a module here and its tests.
"""
