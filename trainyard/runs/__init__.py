"""Read what happened in an execution of any pipeline from the service, and show it.

``execution`` is the one reader of the API; ``run_summary``, ``job_cost``, ``metric_lines`` and
``live_watch`` say what it means; ``selective_rerun`` plans a start from a step. The emulator and
AWS are read alike: no module here asks which it is.
"""
