"""The one function of ``sagemaker_containers.entry_point`` that AWS's own examples call."""


def _wait_hostname_resolution() -> None:
    """Wait until the other hosts have an address: here they have one before a job starts."""
