"""What an upsert needs of the service: the lock, the records, the saved plan, the storage."""
