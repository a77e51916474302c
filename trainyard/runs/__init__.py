"""What happened in an execution of any pipeline, read from the service and shown."""
