"""A custom training loop under MultiWorkerMirroredStrategy that fits a line to noisy points.

Every worker draws its own points; the gradients are summed over all of them, so all workers hold
the same weights after each step, to the last digit. Worker 0's are the model.
"""

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf

SLOPE, OFFSET = 3.0, -1.0


def main() -> None:
    options = parse_arguments()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker, workers = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    with strategy.scope():
        line = [tf.Variable(0.0), tf.Variable(0.0)]

    def on_worker(points: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            errors = line[0] * points + line[1] - values
            loss = tf.reduce_sum(errors**2) / (options.batch * workers)
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, line))
        for variable, gradient in zip(line, gradients, strict=True):
            variable.assign_sub(options.learning_rate * gradient)
        return loss

    @tf.function
    def step(points: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(on_worker, (points, values))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    random = tf.random.Generator.from_seed(worker)
    for number in range(1, options.steps + 1):
        points = random.uniform([options.batch], -1, 1)
        values = SLOPE * points + OFFSET + random.normal([options.batch], stddev=0.1)
        loss = float(step(points, values))
        if worker == 0 and number % 20 == 0:
            print(f"step={number} loss={loss:.6f}", flush=True)
    learned = [float(variable.numpy()) for variable in line]
    print(f"worker {worker} of {workers}: {' '.join(map(float.hex, learned))}", flush=True)
    if worker == 0:
        path = Path(os.environ["SM_MODEL_DIR"]) / "line.json"
        path.write_text(json.dumps(dict(zip(("slope", "offset"), learned, strict=True))))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=0.2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
