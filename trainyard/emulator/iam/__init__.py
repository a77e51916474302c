"""Evaluate IAM policies, and check the emulator's requests against them.

``security_tokens`` checks each request and performs STS's operations. ``service_calls`` and
``s3_calls`` say which actions a request needs. ``authority`` decides with
``trainyard.permissions.policy_evaluation`` and the policies in ``account_policies``.
``access_keys`` knows whose key signed a request. A job never gets the administrator's key:
``access_keys`` creates one for its role.
"""
