"""CloudWatch Logs: the lines of jobs and endpoints, and the calls that read and search them.

``log_store`` appends to files that outlive the emulator, ``logs_api`` answers. A line is written
before anybody is told of it; subscriptions and insights are refused by name.
"""
