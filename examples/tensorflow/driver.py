"""Start a TensorFlow script with TF_CONFIG on every node: train.launcher own, train.driver this.

SDK v3 writes no TF_CONFIG. Ours is the one that AWS's TensorFlow images write for
sagemaker_multi_worker_mirrored_strategy_enabled (sagemaker-tensorflow-training-toolkit,
training.py): every host is a worker, in the order of SM_HOSTS, and worker 0 is the chief. Their
port is 8890; here it counts up from there, since TensorFlow listens on every address of a machine,
and the embedded AWS's hosts are one.
A launcher for another framework is also such a file: it reads the environment, starts the script.
"""

import json
import os
import sys
from collections.abc import Mapping

from common.utils import (  # a module of AWS's drivers, which are next to this file
    execute_commands,
    get_python_executable,
    hyperparameters_to_cli_args,
    write_failure_file,
)

PORT = 8890


def build_tf_config(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the content of TF_CONFIG for this node."""
    hosts = json.loads(environment["SM_HOSTS"])
    return {
        "cluster": {"worker": [f"{host}:{port}" for port, host in enumerate(hosts, start=PORT)]},
        "task": {"type": "worker", "index": hosts.index(environment["SM_CURRENT_HOST"])},
    }


def main() -> None:
    os.environ["TF_CONFIG"] = json.dumps(build_tf_config(os.environ))
    arguments = hyperparameters_to_cli_args(json.loads(os.environ["SM_HPS"]))
    command = [get_python_executable(), os.environ["SM_ENTRY_SCRIPT"], *arguments]
    status, traceback = execute_commands(command)
    if status:
        write_failure_file(traceback)
        sys.exit(status)


if __name__ == "__main__":
    main()
