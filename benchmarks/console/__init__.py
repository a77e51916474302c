"""What the console costs: ten thousand executions, and fifty open pages."""
