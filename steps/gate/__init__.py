"""Turn the evaluation into a verdict, in a small job.

``config`` derives the recipe's fields from ``conditions.check_table``, ``step`` declares the job,
``job`` writes gate.json and the record. The job has no pydantic and, without scores, no numpy.
Checks are ``conditions``' business: nothing here knows one of them.
"""
