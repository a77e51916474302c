"""EventBridge and its Scheduler: changes become events, which rules and schedules deliver."""
