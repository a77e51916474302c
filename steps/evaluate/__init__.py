"""Evaluate the model, by its workload or by the user's script.

``step`` declares both; ``job`` starts either ``workload_evaluation`` or ``script_evaluation``.
These share the table of scores (``score_table``) and the document (``evaluation_document``).
``settings`` and ``latency`` are separate modules because they are read without torch. The job uses
no SDK, boto3 or pipelines.
"""
