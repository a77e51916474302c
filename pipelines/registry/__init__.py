"""The registry: the champion, the ledger of looks, verification and approval of packages.

``package_evidence`` reads a package and its execution; ``verification`` checks them with
``record_checks``, ``training_checks`` and ``recompute``; ``ledger`` counts comparisons on the test
split (looks). To add a check, add a function to the list in ``verification``. What a job wrote is
not trusted: it is computed again or compared.
"""
