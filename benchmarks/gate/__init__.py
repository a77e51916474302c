"""Simulated champions and challengers, judged by the gate."""
