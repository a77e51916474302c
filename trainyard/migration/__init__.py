"""Migrate a pipeline script from SageMaker's SDK v2 to v3, and prove that it still does the same.

``facts`` and ``calls`` are tables of what v3 has instead of v2's names and calls; ``rewriting``
edits the script with libcst and keeps its layout; ``signatures`` runs both scripts under their SDKs
(``recorder`` and ``signature_probe`` run there) and compares their definitions by ``equality``. To
add something that can be migrated, add a row to a table. The SDK is never imported in this process.
"""
