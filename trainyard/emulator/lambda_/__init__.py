"""AWS Lambda: Python functions that really run, in the same runtime as jobs.

``lambda_functions`` keeps and updates them, ``function_invocation`` calls one in a process of its
own, ``bootstrap`` is that process's program: standard library only, since it runs beside the user's
packages.
"""
