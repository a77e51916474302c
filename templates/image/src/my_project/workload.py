"""Recognise the digit in an image: the columns, the decoding of an image, and the loss.

The shard step imports this module without torch; so torch is imported where it is used.
"""

import io

import numpy as np

from training.workloads import Column
from training.workloads.simple import Simple


class Workload(Simple):
    """See training/workloads/simple.py for everything that can be overridden."""

    columns = {"image": Column("bytes"), "digit": Column("number", dtype="uint8")}
    better = {"loss": "lower", "accuracy": "higher"}
    fitted_baselines = ("constant",)

    def prepare(self, sample, seed):
        """Decode an image, in the loader's threads; in training, shift it by up to a pixel.

        The shift depends only on ``seed``, which is None in an evaluation.
        """
        from PIL import Image

        image = Image.open(io.BytesIO(sample["image"].tobytes())).convert("L")
        pixels = np.pad(np.asarray(image, np.float32) / 255, 1)
        top, left = (1, 1) if seed is None else np.random.default_rng(seed).integers(0, 3, 2)
        return {"pixels": pixels[None, top : top + 8, left : left + 8], "digit": sample["digit"]}

    def model(self):
        from my_project.network import Network

        return Network()

    def inputs(self, batch):
        return (batch["pixels"],)

    def loss(self, outputs, batch):
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, batch["digit"].long(), reduction="sum")

    def measure(self, outputs, batch):
        from torch.nn.functional import cross_entropy

        digits = batch["digit"].long()
        loss = cross_entropy(outputs, digits, reduction="none")
        return {"loss": loss, "accuracy": outputs.argmax(1) == digits}
