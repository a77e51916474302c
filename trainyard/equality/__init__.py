"""Do two definitions mean the same? Their normal forms, and an execution of each."""
