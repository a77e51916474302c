"""What Trainyard is measured with; each benchmark is a package that runs with ``python -m``."""
