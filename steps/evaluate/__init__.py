"""Evaluate the model: by its workload, or by the user's script.

``step`` declares both; ``job`` starts one of ``workload_evaluation`` and ``script_evaluation``,
which share the table of scores (``score_table``) and the document (``evaluation_document``).
``settings`` and ``latency`` stand apart, since the step reads them without torch. No SDK, boto3 or
pipelines in the job.
"""
