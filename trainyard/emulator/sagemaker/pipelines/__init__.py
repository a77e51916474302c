"""Pipelines and their executions: reading a definition, and running its steps in order.

``pipeline_versions`` keeps definitions, ``checked_definition`` refuses what AWS refuses,
``executions`` is the API, ``running_execution`` runs steps as ``step_order`` frees them, with cache
and retries. Step types are ``steps/``, one module each. Meaning is ``trainyard.language``'s:
nothing here evaluates an expression.
"""
