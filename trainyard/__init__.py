"""Tools for any SageMaker pipeline: an embedded AWS, and checks of definitions and executions.

This package alone is installed by pip. ``commands`` are its verbs; ``language`` is what they all
read; then one room a question: ``validate``, ``plan``, ``permissions``, ``equality``,
``migration``, ``runs``, ``console``, ``foresight``, and ``emulator``. Nothing here knows our
application, torch or SageMaker's SDK.
"""
