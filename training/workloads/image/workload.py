"""Image classification as a workload: prepared pixels, loss, scores, baselines."""

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from training.data.dataset import Dataset, Passage, Share
from training.data.hashes import sample_hashes
from training.data.manifest import Samples
from training.data.preparation import Preparation
from training.scores import Block
from training.workloads.image import baselines
from training.workloads.image.classes import FILE, Classes
from training.workloads.image.config import ImageConfig
from training.workloads.image.model import ResNet
from training.workloads.image.packing import IMAGE, Packing
from training.workloads.image.pixels import pixels, refuse
from training.workloads.image.scores import columns
from training.workloads.simple import Simple
from trainyard.common.errors import DataError, TrainingError


def answer(
    config: ImageConfig, classes: Classes, model: nn.Module, request: Mapping[str, Any]
) -> dict[str, Any]:
    """``label``, the likeliest class, and ``probabilities`` of all.

    Raises:
        DataError: the request holds no image.
    """
    text = request.get("image")
    if set(request) != {"image"} or not isinstance(text, str):
        raise DataError('expected {"image": "<an encoded image in base64>"}')
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"image: is {text[:40]!r}, expected base64: {error}") from None
    if reason := refuse(content):
        raise DataError(f"image: {reason}")
    found = torch.from_numpy(pixels(content, config, None).copy())[None]
    logits = model(found.to(next(model.parameters()).device))[0]
    shares = logits.double().softmax(0).tolist()
    best = int(torch.as_tensor(shares).argmax())
    return {
        "label": classes.names[best],
        "probabilities": dict(zip(classes.names, shares, strict=True)),
    }


AT_ONCE = 64  # images that are scored together

UNKNOWN = -1
"""The class of an image whose label no training image has: its loss does not count."""


class Workload(Simple):
    """See ``training.workloads.Workload``; the unit is the image."""

    packing: Packing

    def __init__(self, packing: Packing) -> None:
        super().__init__(packing)
        path = packing.assets / FILE if packing.assets else None
        self._classes = Classes.read(path) if path and path.is_file() else None

    @property
    def classes(self) -> Classes:
        """Raises: TrainingError: none were learned yet, and none travelled with the model."""
        if self._classes is None:
            raise TrainingError(
                f"{FILE}: is missing beside the model, so its classes are not known; train it again"
            )
        return self._classes

    def fit(self, train: Dataset) -> None:
        """The classes, from the manifests' statistics alone."""
        self._classes = Classes.of(train.statistics)

    def files(self) -> Mapping[str, bytes]:
        """classes.json."""
        return {FILE: self.classes.content()}

    def model(self) -> nn.Module:
        return ResNet(self.config, len(self.classes.names))

    def prepare(self, sample: Mapping[str, np.ndarray], seed: int | None) -> Mapping[str, Any]:
        """``pixels`` uint8 (size, size, channels), and ``target``, the class's number."""
        content = sample["image"].tobytes()
        try:
            found = pixels(content, self.config, seed)
        except OSError as error:
            name = hashlib.sha256(content).hexdigest()
            raise DataError(
                f"the image with SHA-256 {name} cannot be decoded: {error}; it could be when it "
                "was sharded: is another Pillow installed here?"
            ) from error
        target = self.classes.numbers.get(int(sample["label"]), UNKNOWN)
        return {"pixels": found, "target": np.int64(target)}

    def units(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The number of images of known classes."""
        return (batch["target"] != UNKNOWN).sum()

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["pixels"],)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Cross-entropy in nats, summed over the images."""
        return F.cross_entropy(logits, batch["target"], reduction="sum", ignore_index=UNKNOWN)

    def flops(self, model: nn.Module) -> float:
        """Forward and backward of an image: three times what torch counts in a forward pass."""
        device = next(model.parameters()).device
        size, channels = self.config.size, self.config.channels
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, size, size, channels, dtype=torch.uint8, device=device))
        return 3.0 * counter.get_total_flops()

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """The residual blocks."""
        assert isinstance(model, ResNet)
        return list(model.blocks)

    def scores(
        self,
        model: nn.Module,
        test: Dataset,
        slices: Sequence[str] = (),
        share: Share | None = None,
    ) -> Iterator[Block]:
        """A row is an image; slices are its label, and ``source``, the folder it lay in."""
        device = next(model.parameters()).device
        preparation = Preparation.of(self)

        @torch.inference_mode()
        def logits(samples: Samples) -> np.ndarray:
            batch = preparation.batch(samples)["pixels"].to(device)
            return model(batch).double().cpu().numpy()

        yield from self._scored(logits, test, slices, share)

    def baseline_scores(
        self, train: Dataset, test: Dataset, limit: int
    ) -> Mapping[str, Iterator[Block]]:
        """A logistic regression on a few grey pixels, and the classes' shares."""
        found = baselines.fitted(self.config, self.classes, train, limit)
        return {name: self._scored(logits, test, ()) for name, logits in found.items()}

    def baselines(self, train: Dataset, test: Dataset, limit: int) -> dict[str, dict[str, float]]:
        """The same, over all images."""
        found = {
            name: self.metrics(blocks)
            for name, blocks in self.baseline_scores(train, test, limit).items()
        }
        return {
            name: {metric: told["value"] for metric, told in metrics.items()}
            for name, metrics in found.items()
        }

    def examples(self, dataset: Dataset) -> Iterator[Block]:
        """Images, whatever their labels are."""
        return self.packing.examples(dataset)

    def answer(self, model: nn.Module, request: Mapping[str, Any]) -> dict[str, Any]:
        """The class of an image in base64, and how likely each is."""
        return answer(self.config, self.classes, model, request)

    def _scored(
        self,
        logits: Callable[[Samples], np.ndarray],
        test: Dataset,
        slices: Sequence[str],
        share: Share | None = None,
    ) -> Iterator[Block]:
        self.classes.check(test.statistics)
        for passage in test.stream(AT_ONCE, share):
            targets = self._targets(passage.samples)
            hashes = sample_hashes(passage.samples, IMAGE)
            named = {f"slice.{name}": self._slice(name, test, passage, targets) for name in slices}
            yield (
                {"example": hashes, "group": hashes}
                | named
                | columns(logits(passage.samples), targets)
            )

    def _targets(self, samples: Samples) -> np.ndarray:
        return np.array([self.classes.numbers[code] for code in samples["label"].tolist()])

    def _slice(self, name: str, test: Dataset, passage: Passage, targets: np.ndarray) -> np.ndarray:
        if name == "label":
            return np.array(self.classes.names, object)[targets]
        return test.folders(passage.sources)
