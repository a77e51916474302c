"""A folder for PYTHONPATH: Python imports ``sitecustomize`` from it when an interpreter starts.

It leads fixed addresses of AWS to the emulator, then runs the user's own ``sitecustomize``.
Standard library only, and quick: every Python below ``trainyard run`` pays for it.
"""
