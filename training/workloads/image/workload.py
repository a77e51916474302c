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
from training.data.example_hashes import sample_hashes
from training.data.manifest import Samples
from training.data.preparation import Preparation
from training.scores import Block
from training.workloads import Column
from training.workloads.image import baselines
from training.workloads.image.classes import FILE, Classes
from training.workloads.image.config import ImageConfig
from training.workloads.image.packing import IMAGE, Packing
from training.workloads.image.pixels import pixels, refuse
from training.workloads.simple import Simple
from trainyard.common.errors import DataError, TrainingError


def decode_request(config: ImageConfig, request: Mapping[str, Any]) -> Tensor:
    """Return the pixels of a request's image. Raises: DataError: the request holds no image."""
    text = request.get("image")
    if set(request) != {"image"} or not isinstance(text, str):
        raise DataError('expected {"image": "<an encoded image in base64>"}')
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"image: is {text[:40]!r}, expected base64: {error}") from None
    if reason := refuse(content):
        raise DataError(f"image: {reason}")
    return torch.from_numpy(pixels(content, config, None).copy())


AT_ONCE = 64  # images that are scored together

UNKNOWN = -1
"""Class of an image whose label no training image has: its loss does not count."""


class Workload(Simple):
    """See ``training.workloads.Workload``; the unit is the image."""

    packing: Packing
    at_once = AT_ONCE

    def __init__(self, packing: Packing) -> None:
        super().__init__(packing)
        path = packing.assets / FILE if packing.assets else None
        self._classes = Classes.read(path) if path and path.is_file() else None

    @property
    def classes(self) -> Classes:
        """The learned classes. Raises: TrainingError: none learned or stored with the model."""
        if self._classes is None:
            raise TrainingError(
                f"{FILE}: is missing beside the model, so its classes are not known; train it again"
            )
        return self._classes

    def fit(self, train: Dataset) -> None:
        """Learn the classes from the manifests' statistics alone."""
        self._classes = Classes.from_statistics(train.statistics)

    def files(self) -> Mapping[str, bytes]:
        """Return classes.json."""
        return {FILE: self.classes.content()}

    def model(self) -> nn.Module:
        return ResNet(self.config, len(self.classes.names))

    def prepare(self, sample: Mapping[str, np.ndarray], seed: int | None) -> Mapping[str, Any]:
        """Return ``pixels`` uint8 (size, size, channels), and ``target``, the class's number."""
        content = sample["image"].tobytes()
        try:
            pixel_values = pixels(content, self.config, seed)
        except OSError as error:
            name = hashlib.sha256(content).hexdigest()
            raise DataError(
                f"the image with SHA-256 {name} cannot be decoded: {error}; it could be when it "
                "was sharded: is another Pillow installed here?"
            ) from error
        target = self.classes.numbers.get(int(sample["label"]), UNKNOWN)
        return {"pixels": pixel_values, "target": np.int64(target)}

    def units(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of images of known classes."""
        return (batch["target"] != UNKNOWN).sum()

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["pixels"],)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the cross-entropy in nats, summed over the images."""
        return F.cross_entropy(logits, batch["target"], reduction="sum", ignore_index=UNKNOWN)

    def flops(self, model: nn.Module) -> float:
        """Return the operations per image: three times torch's count of a forward pass."""
        device = next(model.parameters()).device
        size, channels = self.config.size, self.config.channels
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, size, size, channels, dtype=torch.uint8, device=device))
        return 3.0 * counter.get_total_flops()

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the residual blocks."""
        assert isinstance(model, ResNet)
        return list(model.blocks)

    def scores(
        self,
        model: nn.Module,
        test: Dataset,
        slices: Sequence[str] = (),
        share: Share | None = None,
    ) -> Iterator[Block]:
        """Yield a row per image; slices are its label, and ``source``, its folder."""
        device = next(model.parameters()).device
        preparation = Preparation.from_workload(self)

        @torch.inference_mode()
        def logits(samples: Samples) -> np.ndarray:
            batch = preparation.batch(samples)["pixels"].to(device)
            return model(batch).double().cpu().numpy()

        yield from self._score_images(logits, test, slices, share)

    def baseline_scores(
        self, train: Dataset, test: Dataset, limit: int
    ) -> Mapping[str, Iterator[Block]]:
        """Return rows of a logistic regression on a few grey pixels, and of the class shares."""
        fitted_logits = baselines.fit_baselines(self.config, self.classes, train, limit)
        return {
            name: self._score_images(logits, test, ()) for name, logits in fitted_logits.items()
        }

    def baselines(self, train: Dataset, test: Dataset, limit: int) -> dict[str, dict[str, float]]:
        """Return the baselines' metrics over all images."""
        results = {
            name: self.metrics(blocks)
            for name, blocks in self.baseline_scores(train, test, limit).items()
        }
        return {
            name: {metric: entry["value"] for metric, entry in metrics.items()}
            for name, metrics in results.items()
        }

    def examples(self, dataset: Dataset) -> Iterator[Block]:
        """Yield a hash per image, whatever its label."""
        return self.packing.examples(dataset)

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """The column of the images."""
        name = self.config.image
        return {name: self.packing.columns[name]}

    def request(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"image": record[self.config.image]}

    def answers(
        self, model: nn.Module, requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        """Return ``label``, the likeliest class of each image, and ``probabilities`` of all.

        Raises:
            DataError: a request holds no image in base64.
        """
        images = torch.stack([decode_request(self.config, request) for request in requests])
        shares = model(images.to(next(model.parameters()).device)).double().softmax(1)
        names = self.classes.names
        return [
            {"label": names[best], "probabilities": dict(zip(names, row, strict=True))}
            for best, row in zip(shares.argmax(1).tolist(), shares.tolist(), strict=True)
        ]

    def _score_images(
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
            slice_columns = {
                f"slice.{name}": self._slice(name, test, passage, targets) for name in slices
            }
            yield (
                {"example": hashes, "group": hashes}
                | slice_columns
                | columns(logits(passage.samples), targets)
            )

    def _targets(self, samples: Samples) -> np.ndarray:
        return np.array([self.classes.numbers[code] for code in samples["label"].tolist()])

    def _slice(self, name: str, test: Dataset, passage: Passage, targets: np.ndarray) -> np.ndarray:
        if name == "label":
            return np.array(self.classes.names, object)[targets]
        return test.folders(passage.sources)


def columns(logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Return columns from logits (n, classes): −ln p(class) in nats, and whether it is
    likeliest.
    """
    highest = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
    ones = np.ones(len(targets))
    return {
        "log_loss.sum": total - logits[np.arange(len(targets)), targets],
        "log_loss.weight": ones,
        "accuracy.sum": (logits.argmax(axis=1) == targets).astype(np.float64),
        "accuracy.weight": ones,
    }


# Batch normalisation makes what the model computes for an image depend on the others of its
# micro-batch, so on how ranks share a batch. With groups (Wu & He 2018) it depends on the image
# alone, and the curve is the same whatever the strategy.


GROUP = 16  # channels that are normalised together (Wu & He 2018, table 3)


class Norm(nn.GroupNorm):
    """Group normalisation that can be trained even if everything before it is frozen.

    torch 2.13's own crashes with a segmentation fault there: on a CPU, in the backward pass, if
    channels come last in the input and it needs no gradient, in any type.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (n, channels, h, w)."""
        faults = torch.is_grad_enabled() and not input.requires_grad and input.device.type == "cpu"
        return super().forward(input.contiguous() if faults else input)


class Residual(nn.Module):
    """Two convolutions beside a shortcut: (n, inside, h, w) → (n, outside, h/stride, w/stride)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = Norm(outside // GROUP, outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = Norm(outside // GROUP, outside)
        same = inside == outside and stride == 1
        self.shortcut = None if same else nn.Conv2d(inside, outside, 1, stride, bias=False)
        nn.init.zeros_(self.second_norm.weight)  # begins as its shortcut (Goyal et al. 2017)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """Maps pixels (n, size, size, channels) uint8 to logits (n, classes).

    Channels are last in memory throughout, as in the pixels and as GPUs' convolutions
    prefer.
    """

    def __init__(self, config: ImageConfig, classes: int) -> None:
        super().__init__()
        large = config.stem == "large"
        self.stem = nn.Conv2d(
            config.channels, config.width, 7 if large else 3, 2 if large else 1,
            padding=3 if large else 1, bias=False,
        )  # fmt: skip
        self.stem_norm = Norm(config.width // GROUP, config.width)
        self.shrink = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        blocks, inside = [], config.width
        for stage, depth in enumerate(config.depths):
            outside = config.width << stage
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(Residual(inside, outside, stride))
                inside = outside
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(inside, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.normal_(self.head.weight, std=0.01)  # Goyal et al. 2017

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels.permute(0, 3, 1, 2).to(self.head.weight.dtype) / 127.5 - 1
        x = self.shrink(F.relu(self.stem_norm(self.stem(x))))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.mean(x, dim=(2, 3)))
