"""A console in the browser, over AWS's API.

What reads AWS raises ServiceError where AWS refuses, cannot be reached, or lacks what is asked for;
docstrings here do not repeat that.
"""
