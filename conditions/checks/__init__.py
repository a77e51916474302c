"""The gate's checks, one module for each check or family of checks; ``CHECKS`` is its entry.

A new module is found by itself (``conditions.check_table.checks``). It declares its recipe fields,
its needs and its rows; numpy and SciPy are imported inside the functions that compute.
"""
