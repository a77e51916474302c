"""Interrupts a training at random steps, resumes it, and compares the whole loss curve."""
