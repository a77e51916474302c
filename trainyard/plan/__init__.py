"""What an upsert would change, which steps would run again and why, and what that may cost."""
