"""CloudWatch: metrics of the emulator and of its users, and alarms on them."""
