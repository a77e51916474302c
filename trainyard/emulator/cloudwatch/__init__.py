"""CloudWatch: metrics of the emulator and of its users, and alarms on them.

``cloudwatch_api`` handles requests. ``metric_store`` stores values, and records what happens in the
emulator under AWS's metric names. ``alarms`` are evaluated for deployments of endpoints. Alarm
actions are refused.
"""
