"""CloudWatch Logs: the lines of jobs and endpoints, and the operations that read and search them.

``log_store`` appends them to files that stay when the emulator stops. ``logs_api`` answers
requests. A line is written before a client can see it. Subscriptions and insights are refused.
"""
