"""AWS Lambda: Python functions that really run, in the same runtime as jobs."""
