"""Endpoints: start the containers of models for serving as SageMaker does, and update them.

``endpoints`` implements the operations on endpoints and their configurations, ``endpoint`` shifts
requests from one fleet to the next during an update, ``serving_instance`` starts and restarts
containers, and ``invocations`` handles InvokeEndpoint. ``containers/`` contains the programs that
replace the ``serve`` command of images.
"""
