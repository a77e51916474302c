"""Tools for any SageMaker pipeline: an emulator of AWS, and checks of definitions and executions.

This is the only package that pip installs. ``commands`` contains its verbs, and ``language`` what
all of them read. Each other package answers one question: ``validate``, ``plan``, ``permissions``,
``equality``, ``migration``, ``runs``, ``console``, ``foresight``, and ``emulator``. It imports
neither our application, torch nor SageMaker's SDK.
"""
