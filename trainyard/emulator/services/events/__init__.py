"""EventBridge and its Scheduler: what changes becomes an event, and rules and clocks deliver it."""
