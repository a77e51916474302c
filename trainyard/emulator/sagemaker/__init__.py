"""SageMaker in the emulator: its API, and the jobs, pipelines and endpoints that it starts.

``sagemaker_api.py`` routes the requests. ``pipelines/`` runs pipeline definitions, ``jobs/`` runs
training and processing jobs, and ``tuning/``, ``transform/`` and ``endpoints/`` do what their names
say. ``resources.py`` handles the kinds of resources that are only stored. The processes of jobs are
started in ``trainyard.emulator.containers``.
"""
