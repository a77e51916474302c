"""Endpoints: a model package's container, started for serving as SageMaker does, and its updates.

``endpoints`` keeps and checks configurations, ``endpoint`` shifts requests between fleets,
``fleet`` and ``serving_instance`` start containers and start them again, ``invocations`` answers.
``containers/`` has the programs that stand in for images' ``serve``.
"""
