"""AWS Lambda: Python functions that really run, in the same runtime as jobs.

``lambda_functions`` stores and updates them. ``function_invocation`` calls a function in a separate
process. ``bootstrap`` is the program of that process; it uses only the standard library, because it
runs in the same interpreter as the user's packages.
"""
