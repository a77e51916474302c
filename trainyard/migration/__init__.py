"""Move a pipeline script from SageMaker's SDK v2 to v3, and prove that it still does the same.

``facts`` say what v3 calls a thing of v2, ``rewriting`` edits the script by libcst and keeps its
layout, ``proof`` compiles both under their SDKs (``recorder``, ``signature_probe`` run there) and
asks ``equality``. To add a move: a row of ``facts``. The SDK is never imported in this process.
"""
