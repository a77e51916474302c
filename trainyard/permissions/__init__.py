"""Derive least privilege: what the roles around a pipeline need, and nothing else.

``pipeline_role`` and ``job_role`` derive statements from a definition, ``policy_answer`` compares
them with a policy that is there, ``policy_evaluation`` is IAM's logic, which the emulator uses,
too. What no definition says is a gap with a name, not a wildcard.
"""
