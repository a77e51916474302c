"""EventBridge and its Scheduler: changes become events, which rules and schedules deliver.

``eventbridge`` sends what happens here, ``event_rules`` match and deliver it, ``schedules`` fire by
``schedule_expressions``. Targets are queues, topics, functions and pipelines; others are refused by
name.
"""
