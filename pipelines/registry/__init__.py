"""The registry: the champion, the ledger of looks, verification and approval of packages.

``package_evidence`` reads a package and its run; ``verification`` compares them by
``record_checks``, ``training_checks`` and ``recompute``; ``ledger`` counts comparisons. To add a
check: a function in the list of ``verification``. What a job wrote is not believed: it is computed
again or compared.
"""
