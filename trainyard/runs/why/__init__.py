"""Find out why an execution failed: its first cause, the log lines that show it, and how to fix it.

``read_evidence`` gathers what the service keeps, ``diagnosis`` tries ``known_causes``,
``logged_exceptions`` and ``failed_conditions`` in order, ``run_display`` shows it. To add a
cause: a row of ``known_causes`` and a real failure in ``benchmarks.why``. What nothing shows is
called unknown.
"""
