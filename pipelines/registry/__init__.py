"""The registry: the champion, the ledger of looks, verification and approval of packages."""
