"""Read from the service what happened in an execution of any pipeline, and show it.

``execution`` reads the API; ``run_display``, ``job_cost``, ``metric_lines`` and ``live_watch``
interpret and show what it returns; ``selective_rerun`` plans a start from a step. No module here
distinguishes between the emulator and AWS. "Run" means an execution of a pipeline.
"""
