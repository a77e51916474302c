"""Plan an upsert: its changes, the steps that would run again and why, and their possible cost."""
