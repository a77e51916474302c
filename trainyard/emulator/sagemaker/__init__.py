"""SageMaker of the emulator: its API, and what each request has started.

``sagemaker_api.py`` routes the calls; ``pipelines/`` runs definitions, ``jobs/`` training and
processing, ``tuning/``, ``transform/`` and ``endpoints/`` what they are named after, ``resources/``
is what is only stored. Processes of jobs start in ``trainyard.emulator.containers``.
"""
