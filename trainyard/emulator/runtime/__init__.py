"""How a job's nodes run as processes of this machine."""
