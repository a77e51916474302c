"""A folder for PYTHONPATH: packages that users' scripts import from AWS's images."""
