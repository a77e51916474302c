"""Evaluate IAM's policies, and hold the emulator's requests to them."""
