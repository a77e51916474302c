"""CloudWatch: metrics of what runs here and of its users, and alarms that are evaluated."""
