"""A folder for PYTHONPATH: Python imports ``sitecustomize`` from it when an interpreter starts.

That module redirects fixed addresses of AWS to the emulator, and then runs the user's own
``sitecustomize``. It uses only the standard library, and is quick, because every Python process
under ``trainyard run`` imports it.
"""
