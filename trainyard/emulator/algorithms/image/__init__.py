"""A folder for PYTHONPATH, with packages that users' scripts import from AWS's images."""
