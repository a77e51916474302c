"""What a training waits for data on a file system that is slow."""
