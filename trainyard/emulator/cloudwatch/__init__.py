"""CloudWatch: metrics of the emulator and of its users, and alarms on them.

``cloudwatch_api`` answers requests, ``metric_store`` keeps values, ``own_metrics`` are AWS's names
for what happens here, ``alarms`` are evaluated for deployments. Actions of alarms are refused by
name.
"""
