"""A console in the browser, based on AWS's API.

Functions that read from AWS raise ServiceError if AWS refuses, cannot be reached, or does not have
what is requested. The docstrings here do not repeat that.
"""
