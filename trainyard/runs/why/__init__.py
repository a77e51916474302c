"""Find out why an execution failed: its first cause, the log lines that show it, and how to fix it.

``read_evidence`` gathers what the service keeps; ``diagnosis`` tries in order the known causes and
exceptions of ``logged_exceptions`` and the conditions of the Fail step; ``run_display`` shows the
result. To add a cause: a row of ``logged_exceptions`` and a real failure in
``tests/trainyard/runs/why/failures.yaml``. A cause that nothing shows is reported as unknown.
"""
