"""The recipe's endpoint: the rollout of a model package, and the monitoring while it serves.

``rollout`` updates the endpoint as a canary and rolls it back; ``period`` and ``endpoint_requests``
read captured requests; ``drift`` and ``answer_quality`` test them, each test with its name and
source. The commands are ``pipelines.deploy`` and ``pipelines.monitor``. Only boto3 is used, not the
SDK, so that the role's permissions follow from the calls in this code.
"""
