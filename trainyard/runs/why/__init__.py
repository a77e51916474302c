"""Find why a run failed: its first cause, the lines that show it, and what to do."""
