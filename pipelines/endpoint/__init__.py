"""The recipe's endpoint: the rollout of a model package, and what is monitored while it serves.

``rollout`` updates it as a canary and takes it back; ``period`` and ``endpoint_requests`` read what
was captured; ``drift`` and ``answer_quality`` test it, each test with its name and source. The
verbs are ``pipelines.deploy`` and ``pipelines.monitor``. No SDK: boto3 alone, so that a role is
what it calls.
"""
