"""Run ``ray start`` without what this job has no use for: its client server; and on one machine so
that nothing listens beyond the loopback address.

python -m steps.shard.ray_start ADDRESS ARGUMENTS of ``ray start``

Ray has no options for these two: it starts the server wherever grpc is installed, and replaces a
loopback address by the machine's own. So names of its own are replaced, of the version that
pyproject.toml pins.
"""

import sys

from ray._private import services
from ray.scripts import scripts

from steps.shard.instances import LOOPBACK


def main() -> None:
    address, arguments = sys.argv[1], sys.argv[2:]
    scripts.get_ray_client_dependency_error = lambda: "not used"
    keep_address(address)
    sys.argv = ["ray", "start", "--node-ip-address", address, *arguments]
    scripts.main()


def keep_address(address: str) -> None:
    """Have Ray take a loopback address as it is."""
    if address == LOOPBACK:
        services.get_node_ip_address = lambda *_: LOOPBACK


if __name__ == "__main__":
    main()
