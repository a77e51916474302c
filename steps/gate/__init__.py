"""Turn the evaluation into a verdict, in a small job.

``config`` derives the recipe's fields from ``conditions.check_table``, ``step`` declares the job,
``job`` writes gate.json and the record. The job uses no pydantic and, if no check reads scores, no
numpy. The checks themselves are in ``conditions``: nothing here depends on a particular one.
"""
