"""Derive least-privilege policies: what the roles around a pipeline need, and nothing else.

``pipeline_role`` and ``job_role`` derive statements from a definition, ``policy_answer`` compares
them with an existing policy, and ``policy_evaluation`` implements IAM's evaluation logic, which the
emulator also uses. A permission that is needed but cannot be derived from the definition is a
"gap": it is reported by name, and never replaced by a wildcard.
"""
