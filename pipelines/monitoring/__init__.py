"""Compare what an endpoint was asked with a baseline, and name the features that drifted."""
