"""EventBridge and its Scheduler: changes become events, and rules and schedules deliver events.

``eventbridge`` creates events for what happens in the emulator, ``schedules`` has the Scheduler,
``event_rules`` matches events with rules and delivers them, ``event_patterns`` has the patterns,
and ``schedule_expressions`` computes when rules and schedules fire. Targets are queues, topics,
functions and pipelines; others are refused.
"""
