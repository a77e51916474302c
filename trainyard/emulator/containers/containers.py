"""A job's nodes as containers of the user's engine: one network per job, one container per node.

The network has no way out (``--internal``) except to the emulator's endpoint, which listens at the
network's gateway address. The nodes' addresses are chosen here and written to each node's
/etc/hosts, so that names resolve from the start without the engine's name server. Only SageMaker's
folders are mounted, so other contents of /opt/ml in an image remain visible, as on AWS.
"""

import contextlib
import errno
import json
import os
import random
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from trainyard.common.errors import EmulatorError
from trainyard.emulator.client_environment import Access
from trainyard.emulator.containers.container_engine import (
    LABEL,
    MARK,
    Engine,
    build_limit_options,
    extract_error_line,
    find_engine,
    select_client_variables,
)
from trainyard.emulator.containers.isolation import build_program_command, find_state_directory
from trainyard.emulator.containers.node import Node

IP_FREEBIND = 15  # linux/in.h: the gateway's address exists only once a container runs
FIRST = 2  # last number of algo-1's address; the gateway's is 1
TRIES = 50  # maximum number of random subnets to try until one is free
GPU = Path("/dev/nvidiactl")


class Containers:
    """Run nodes as containers; see :class:`~trainyard.emulator.containers.isolation.Isolation`.

    ``subnet`` has the first three numbers of the network's addresses; it is empty if there is no
    network. ``url`` is the endpoint's URL inside the network; it is empty if the job has no access
    to the endpoint.
    """

    notice = None
    loopback = False

    def __init__(
        self, engine: Engine, name: str, label: str, gpus: bool, subnet: str = "", url: str = ""
    ) -> None:
        self._engine, self._name, self._label, self._gpus = engine, name, label, gpus
        self._subnet, self.url = subnet, url
        self._after: list[list[str]] = []
        self._nodes: list[str] = []

    @property
    def interface(self) -> str:
        return "eth0" if self._subnet else "lo"

    def supervisor(self, spec: Path) -> list[str]:
        """Return the command that runs the containers' supervisor with the file ``spec``."""
        engine = {
            "command": [self._engine.command],
            "containers": {node: f"{self._name}-{node}" for node in self._nodes},
            "after": self._after,
            "removal": self._engine.removal_command,
            "environment": select_client_variables(),
        }
        return [*build_program_command("container_supervisor"), str(spec), json.dumps(engine)]

    def setup(self, job: Path) -> list[list[str]]:
        """Return no commands, because the engine itself mounts the folders."""
        return []

    def prepare(self, node: Node, hosts: list[str]) -> None:
        """Pull the node's image, and change the node's command to the engine's command that runs it
        in a container. Raises :class:`EmulatorError` if the image cannot be pulled.
        """
        self._nodes.append(node.name)
        image = self._engine.pull(node.image)
        node.digest = image.digest
        mounts = self._build_mount_options(node)
        if image.user not in ("", "0", "root"):
            for folder, _, _ in os.walk(node.ml):
                os.chmod(folder, 0o777)  # so that the image's user can write its results
        options = [
            *("--name", f"{self._name}-{node.name}", "--label", self._label),
            *("--hostname", node.name, *self._build_network_options(node, hosts)),
            *("--log-driver", "none", "--security-opt", "label=disable"),
            # Half of the machine's memory, which is the default of a tmpfs: an engine's default of
            # 64 MB is too little for DataLoaders.
            *("--shm-size", str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)),
            *self._build_limit_options(),
            *mounts,
        ]
        for name, value in node.environment.items():
            # Secrets are passed in the client's environment, because other users can see its
            # arguments.
            secret = name.startswith("AWS_")
            options += ["--env", name if secret else f"{name}={value}"]
        secrets = {k: v for k, v in node.environment.items() if k.startswith("AWS_")}
        command = [image.name, *node.command]
        if not node.own_entrypoint:
            command = ["--entrypoint", node.command[0], image.name, *node.command[1:]]
        node.command = [self._engine.command, "run", *options, *command]
        node.environment = select_client_variables() | secrets
        if os.geteuid() and not self._engine.is_podman:  # root in the container owns the files
            owner = f"{os.geteuid()}:{os.getegid()}"
            run = [self._engine.command, "run", "--rm", "--network", "none", "--user", "0"]
            chown = ["--entrypoint", "chown", image.name, "-R", owner, "/opt/ml"]
            self._after.append([*run, *mounts, *chown])

    def _build_network_options(self, node: Node, hosts: list[str]) -> list[str]:
        if not self._subnet:
            return ["--network", "none", "--add-host", f"{node.name}:127.0.0.1"]
        addresses = {host: f"{self._subnet}.{FIRST + n}" for n, host in enumerate(hosts)}
        node.address = addresses[node.name]
        known = [f"--add-host={host}:{address}" for host, address in addresses.items()]
        return ["--network", self._name, "--ip", node.address, *known]

    def _build_limit_options(self) -> list[str]:
        """Return options that set resource limits no higher than this process's, and options for
        GPUs.
        """
        gpus = self._gpus and GPU.exists()
        if not self._engine.is_podman:
            return ["--gpus", "all"] if gpus else []
        return [*build_limit_options(), *(["--device", "nvidia.com/gpu=all"] if gpus else [])]

    def _build_mount_options(self, node: Node) -> list[str]:
        mounts = [(child, f"/opt/ml/{child.name}", "") for child in sorted(node.ml.iterdir())]
        for mount in node.mounts:
            Path(mount.target).mkdir(exist_ok=True)
            inside = f"/opt/ml/{Path(mount.target).relative_to(node.ml)}"
            mounts.append((Path(mount.source), inside, ",readonly" if mount.read_only else ""))
        bind = [
            f'type=bind,"source={path}",target={inside}{suffix}' for path, inside, suffix in mounts
        ]
        return [word for text in bind for word in ("--mount", text)]


@contextlib.contextmanager
def open_container_network(
    directory: Path,
    access: Access | None,
    *,
    alone: bool = False,
    internet: bool = False,
    gpus: bool = False,
) -> Iterator[Containers]:
    """Yield the runtime of a job in ``directory``, with a network that is removed when the context
    ends.

    ``alone``: the job has a single node, so no other node has to reach it; without ``access`` it
    then gets no network. Raises :class:`EmulatorError` if there is no engine or the network cannot
    be created.
    """
    engine, state = find_engine(), find_state_directory(directory) or directory
    # Create the mark before anything else: the next start only looks for remains if it exists.
    (state / MARK).touch()
    name, label = f"trainyard-{uuid.uuid4().hex[:12]}", f"{LABEL}={state}"
    subnet = url = ""
    with contextlib.ExitStack() as stack:
        if access or not alone:
            subnet = _create_network(engine, name, label, internet)
            stack.callback(engine.call, "network", "rm", name)
        if access:
            door = _open_listener(f"{subnet}.1", urlsplit(access.route.url).port or 0)
            stack.callback(door.close)
            # Wakes the thread that waits in accept(). Callbacks run in reverse order, so this runs
            # before close.
            stack.callback(door.shutdown, socket.SHUT_RDWR)
            access.route.admit(door)
            url = f"http://{subnet}.1:{door.getsockname()[1]}"
        yield Containers(engine, name, label, gpus, subnet, url)


def _create_network(engine: Engine, name: str, label: str, internet: bool) -> str:
    """Create a network with a free subnet of 10.128.0.0/9. Return the first three numbers of its
    addresses.
    """
    closed = [] if internet else ["--internal"]
    for _ in range(TRIES):
        subnet = f"10.{random.randrange(128, 256)}.{random.randrange(256)}"
        options = ["--label", label, "--subnet", f"{subnet}.0/24", "--gateway", f"{subnet}.1"]
        result = engine.call("network", "create", *closed, *options, name)
        if result.returncode == 0:
            return subnet
        if "overlap" not in result.stderr and "already used" not in result.stderr:
            break
    raise EmulatorError(f"{engine.name} network create: {extract_error_line(result)}")


def _open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at ``host``, an address that this machine will have later. Use
    another port if ``port`` is taken.
    """
    door = socket.socket()
    door.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    try:
        door.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        door.bind((host, 0))
    door.listen(128)
    return door
