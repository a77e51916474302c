"""The only function of ``sagemaker_containers.entry_point`` that AWS's own examples call."""


def _wait_hostname_resolution() -> None:
    """Do nothing. On AWS it waits until the names of other hosts are resolved; here they are before
    a job starts.
    """
