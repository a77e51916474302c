"""Does the gate keep its word? Simulated champions and challengers, and ten million scores."""
