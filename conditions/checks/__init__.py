"""The gate's checks, one module for each check or family of checks.

Each module has ``CHECKS``, its entries in the table, and is found automatically
(``conditions.check_table.load_checks``). An entry declares its recipe fields, its needs and its
rows. Import numpy and SciPy only inside the functions that compute.
"""
