"""Is a registered model what its record says? Everything that can be computed again is."""
