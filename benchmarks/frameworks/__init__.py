"""What other systems of distributed training do on this machine (docs/frameworks.md)."""
