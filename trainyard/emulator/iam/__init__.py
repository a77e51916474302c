"""Evaluate IAM's policies, and hold the emulator's requests to them.

``incoming`` holds each request, ``service_calls`` and ``s3_calls`` say which actions it needs,
``authority`` decides by ``trainyard.permissions.policy_evaluation``; ``security_tokens`` and
``access_keys`` are who asks. A job never gets the administrator's key: ``access_keys`` makes one
for its role.
"""
