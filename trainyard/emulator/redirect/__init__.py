"""A folder for PYTHONPATH: Python imports ``sitecustomize`` from it when an interpreter starts."""
