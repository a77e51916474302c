"""Read what happened in an execution of any pipeline from the service, and show it."""
