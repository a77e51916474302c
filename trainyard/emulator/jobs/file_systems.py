"""Local directories that stand in for FSx and EFS file systems."""

import os
from pathlib import Path

from trainyard.emulator.jobs.transfers import ClientFault

FILE_SYSTEMS = "TRAINYARD_EMULATOR_FILE_SYSTEMS"
"""``fs-0123=/local/directory,...``: what stands in for an FSx or EFS file system."""


def file_system(channel: dict) -> Path:
    """The local directory that stands in for the channel's FSx or EFS file system."""
    source = channel["DataSource"]["FileSystemDataSource"]
    pairs = [pair.partition("=") for pair in os.environ.get(FILE_SYSTEMS, "").split(",")]
    mapped = {name.strip(): directory.strip() for name, _, directory in pairs}
    wanted = source["FileSystemId"]
    if not Path(mapped.get(wanted, "")).is_absolute() or not Path(mapped[wanted]).is_dir():
        raise ClientFault(
            f"{source['FileSystemType']} file system {wanted} does not exist on this machine: set "
            f"{FILE_SYSTEMS}={wanted}=/a/local/directory to what {source['DirectoryPath']} holds"
        )
    return Path(mapped[wanted])
