"""Scripts that replace a container's ``serve``; they run as containers, not as modules."""
