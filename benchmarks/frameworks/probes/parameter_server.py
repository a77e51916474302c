# packages: tensorflow-cpu==2.21.0
# with: dependencies
# ends: works
"""TensorFlow's ParameterServerStrategy: a coordinator, a worker and a parameter server."""

import json
import os
import socket
import subprocess
import sys


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def serve() -> None:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    server.join()


def coordinate() -> None:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step(value):
        total.assign_add(value)

    for value in range(10):
        coordinator.schedule(step, args=(tf.constant(float(value)),))
    coordinator.join()
    print(total.numpy(), "works" if total.numpy() == 45 else "is wrong")


if len(sys.argv) > 1:
    serve() if sys.argv[1] == "serve" else coordinate()
else:
    cluster = {name: [f"127.0.0.1:{port()}"] for name in ("chief", "worker", "ps")}
    told = {
        name: os.environ
        | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": name, "index": 0}})}
        for name in cluster
    }
    own = [sys.executable, __file__]
    servers = [subprocess.Popen([*own, "serve"], env=told[name]) for name in ("worker", "ps")]
    try:
        subprocess.run([*own, "coordinate"], env=told["chief"], timeout=300, check=True)
    finally:
        for server in servers:
            server.kill()
