"""``fit`` under MultiWorkerMirroredStrategy: tf-keras, which has Keras 2's API.

Keras 3's ``fit`` raises a ValueError about PerReplica under this strategy. So TF_USE_LEGACY_KERAS
is set before TensorFlow is imported, and tf-keras is one of the requirements.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf  # noqa: E402 (it reads the variable when it is imported)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker, workers = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.2), "mse")
    points = tf.random.stateless_uniform([1024, 1], [1, 2], -1, 1)
    data = tf.data.Dataset.from_tensor_slices((points, 3 * points - 1)).batch(64)
    history = model.fit(data, epochs=options.epochs, verbose=0)
    for epoch, loss in enumerate(history.history["loss"], start=1):
        print(f"epoch={epoch} loss={loss:.6f}", flush=True)
    weights = [float(value) for array in model.get_weights() for value in array.ravel()]
    print(f"worker {worker} of {workers}: {' '.join(map(float.hex, weights))}", flush=True)
    if worker == 0:
        path = Path(os.environ["SM_MODEL_DIR"]) / "line.json"
        path.write_text(json.dumps(dict(zip(("slope", "offset"), weights, strict=True))))


if __name__ == "__main__":
    main()
