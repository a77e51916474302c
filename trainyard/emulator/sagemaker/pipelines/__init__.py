"""Pipelines and their executions: store and read definitions, and run their steps in order.

``pipeline_versions`` stores definitions and refuses those that AWS refuses, ``checked_definition``
reads them and refuses what the emulator cannot run, ``executions`` has the API operations, and
``running_execution`` runs steps when ``step_order`` allows it, with cache and retries. Step types
are in ``steps/``, one module each. ``trainyard.language`` defines what definitions mean: nothing
here evaluates an expression itself.
"""
