"""Whether `trainyard why` finds the cause of failures that are known."""
