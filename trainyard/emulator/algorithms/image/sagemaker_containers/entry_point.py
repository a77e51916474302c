"""The only function of ``sagemaker_containers.entry_point`` that AWS's own examples call."""


def _wait_hostname_resolution() -> None:
    """Do nothing. On AWS, this waits until the other hosts' names can be resolved; here they can be
    before a job starts.
    """
