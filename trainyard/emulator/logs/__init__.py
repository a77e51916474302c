"""CloudWatch Logs: the lines of jobs and endpoints, and the calls that read and search them."""
