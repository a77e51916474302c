"""How often the host waits for the device between two logged steps."""
