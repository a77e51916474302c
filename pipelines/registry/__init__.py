"""Who is compared with whom: the champion, the ledger of looks, the judged and the approved."""
