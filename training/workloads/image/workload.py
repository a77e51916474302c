"""Image classification as a workload: prepared pixels, loss, scores, baselines."""

import binascii
import hashlib
import json
import logging
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ValidationError
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from training.data.dataset import Dataset, Share
from training.data.loader import Preparation, split_batch
from training.data.manifest import Samples
from training.data.shard_writer import hash_samples
from training.scores import Block
from training.workloads import Column
from training.workloads.column_packing import hash_values
from training.workloads.image.config import ImageConfig
from training.workloads.image.packing import IMAGE, Packing
from training.workloads.image.pixels import decode_crop, explain_undecodable
from training.workloads.simple import Simple
from trainyard.common.errors import DataError, TrainingError

# The classes are learned from the training split, and stored with the model as classes.json.

FILE = "classes.json"


def count_labels(parts: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return the number of images of each label, from the statistics of units."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part["labels"])
    return total


class Classes(BaseModel):
    """The labels, in the order of the model's logits."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    """Number of images of each class in the training split."""

    @classmethod
    def from_statistics(cls, parts: Iterable[Mapping[str, Any]]) -> Self:
        """Return the classes, sorted by value if all labels are whole numbers, else alphabetically.

        Raises:
            TrainingError: there are fewer than two classes.
        """
        counts = count_labels(parts)
        if len(counts) < 2:
            raise TrainingError(
                f"the training split's images have {len(counts)} labels ({', '.join(counts)}): "
                "at least two are needed; check workload.config.label"
            )
        digits = all(name.isascii() and name.isdigit() for name in counts)
        names = sorted(counts, key=lambda name: (int(name) if digits else 0, name))
        return cls(names=tuple(names), counts=tuple(counts[name] for name in names))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the classes from a file.

        Raises:
            DataError: the file is damaged.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(
                f"{path}: is damaged ({error.errors()[0]['msg']}); train the model again"
            ) from None

    def render_json(self) -> bytes:
        """Return the content of classes.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False).encode()

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Return a mapping of a label's hash, as stored in samples, to the index of its logit."""
        codes = hash_values(list(self.names)).tolist()
        return {code: number for number, code in enumerate(codes)}

    @property
    def shares(self) -> np.ndarray:
        """Return each class's share of the training split's images, float64 (classes,)."""
        return np.array(self.counts) / sum(self.counts)

    def check(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Check that the model can predict all labels of a split, given by its statistics.

        Raises:
            DataError: there are labels that no training image has.
        """
        if unknown := sorted(count_labels(parts).keys() - set(self.names)):
            raise DataError(
                f"the test split has labels that no training image has: {', '.join(unknown[:10])}; "
                "give more images of these, leave them out, or lower shard.test_share"
            )


def decode_request(config: ImageConfig, request: Mapping[str, Any]) -> Tensor:
    """Return the pixels of a request's image.

    Raises:
        DataError: the request does not contain an image.
    """
    text = request.get("image")
    if set(request) != {"image"} or not isinstance(text, str):
        raise DataError('expected {"image": "<an encoded image in base64>"}')
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"image: is {text[:40]!r}, expected base64: {error}") from None
    if reason := explain_undecodable(content):
        raise DataError(f"image: {reason}")
    return torch.from_numpy(decode_crop(content, config, None).copy())


AT_ONCE = 64  # number of images that are scored together

UNKNOWN = -1
"""Class of an image with a label that no training image has. Its loss is ignored."""


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
        """Return the learned classes.

        Raises:
            TrainingError: they were neither learned nor stored with the model.
        """
        if self._classes is None:
            raise TrainingError(
                f"{FILE}: is missing beside the model, so its classes are not known; train it again"
            )
        return self._classes

    def fit(self, train: Dataset) -> None:
        """Learn the classes from the statistics in the manifests, without reading images."""
        self._classes = Classes.from_statistics(train.statistics)

    def files(self) -> Mapping[str, bytes]:
        """Return classes.json."""
        return {FILE: self.classes.render_json()}

    def model(self) -> nn.Module:
        return ResNet(self.config, len(self.classes.names))

    def prepare(self, sample: Mapping[str, np.ndarray], seed: int | None) -> Mapping[str, Any]:
        """Return ``pixels``, uint8 (size, size, channels), and ``target``, the class's index."""
        content = sample["image"].tobytes()
        try:
            pixel_values = decode_crop(content, self.config, seed)
        except OSError as error:
            name = hashlib.sha256(content).hexdigest()
            raise DataError(
                f"the image with SHA-256 {name} cannot be decoded: {error}; it could be when it "
                "was sharded: is another version of Pillow installed here?"
            ) from error
        target = self.classes.numbers.get(int(sample["label"]), UNKNOWN)
        return {"pixels": pixel_values, "target": np.int64(target)}

    def units(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of images with a known class."""
        return (batch["target"] != UNKNOWN).sum()

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["pixels"],)

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the cross-entropy in nats, summed over the images."""
        return F.cross_entropy(logits, batch["target"], reduction="sum", ignore_index=UNKNOWN)

    def flops(self, model: nn.Module) -> float:
        """Return the floating-point operations per image: three times torch's count of a forward
        pass.
        """
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
        """Yield blocks of one row per image. Slices: ``label``; ``source`` (the image's folder)."""
        device = next(model.parameters()).device
        preparation = Preparation.from_workload(self)

        @torch.inference_mode()
        def compute_logits(samples: Samples) -> np.ndarray:
            batch = preparation.make_batch(samples)["pixels"].to(device)
            return model(batch).double().cpu().numpy()

        yield from self._score_images(compute_logits, test, slices, share)

    def baseline_scores(
        self, train: Dataset, test: Dataset, limit: int
    ) -> Mapping[str, Iterator[Block]]:
        """Return scores of a logistic regression on a few grey pixels, and of the class shares."""
        fitted_logits = fit_baselines(self.config, self.classes, train, limit)
        return {
            name: self._score_images(logits, test, ()) for name, logits in fitted_logits.items()
        }

    def examples(self, dataset: Dataset) -> Iterator[Block]:
        """Yield a hash of each image, without its label."""
        return self.packing.examples(dataset)

    @property
    def request_columns(self) -> Mapping[str, Column]:
        """Return the column of the images."""
        name = self.config.image
        return {name: self.packing.columns[name]}

    def request(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"image": record[self.config.image]}

    def answers(
        self, model: nn.Module, requests: Sequence[Mapping[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        """Return ``label``, the most likely class of each image, and all ``probabilities``.

        Raises:
            DataError: a request does not contain an image in base64.
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
        """Yield a row per image from a function that returns the logits of samples."""
        self.classes.check(test.statistics)
        for passage in test.stream(AT_ONCE, share):
            codes = passage.samples["label"].tolist()
            targets = np.array([self.classes.numbers[code] for code in codes])
            hashes = hash_samples(passage.samples, IMAGE)
            slice_columns = {
                f"slice.{name}": np.array(self.classes.names, object)[targets]
                if name == "label"
                else test.get_folders(passage.sources)
                for name in slices
            }
            yield (
                {"example": hashes, "group": hashes}
                | slice_columns
                | build_score_columns(logits(passage.samples), targets)
            )


def build_score_columns(logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Return the score columns for logits (n, classes).

    log_loss is −ln p(class) in nats; accuracy is whether the class is the most likely one.
    """
    # The highest logit is subtracted, so that ``exp`` cannot overflow.
    highest = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
    ones = np.ones(len(targets))
    return {
        "log_loss.sum": total - logits[np.arange(len(targets)), targets],
        "log_loss.weight": ones,
        "accuracy.sum": (logits.argmax(axis=1) == targets).astype(np.float64),
        "accuracy.weight": ones,
    }


# The model uses group normalisation (Wu & He 2018). With batch normalisation, what it computes for
# an image would depend on the other images of the micro-batch, and so on how ranks share a batch.
# With group normalisation it depends only on the image, so that the loss curve is the same with
# every strategy.


GROUP = 16  # channels that are normalised together (Wu & He 2018, table 3)


class Norm(nn.GroupNorm):
    """Group normalisation that can be trained even if everything before it is frozen.

    torch 2.13's own then crashes with a segmentation fault: in the backward pass on a CPU, if
    channels are last in the input and the input needs no gradient, with any type.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``input``, (n, channels, h, w)."""
        faults = torch.is_grad_enabled() and not input.requires_grad and input.device.type == "cpu"
        return super().forward(input.contiguous() if faults else input)


class Residual(nn.Module):
    """Residual block: two convolutions with a shortcut around them.

    Maps (n, in_channels, h, w) to (n, out_channels, h/stride, w/stride).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.first_norm = Norm(out_channels // GROUP, out_channels)
        self.second = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.second_norm = Norm(out_channels // GROUP, out_channels)
        keeps_shape = in_channels == out_channels and stride == 1
        self.shortcut = (
            None if keeps_shape else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
        )
        nn.init.zeros_(self.second_norm.weight)  # starts as its shortcut alone (Goyal et al. 2017)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """Maps pixels (n, size, size, channels) uint8 to logits (n, classes).

    Channels are last in memory everywhere, as in the pixels, because the convolutions of GPUs are
    fastest with that.
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
        blocks, in_channels = [], config.width
        for stage, depth in enumerate(config.depths):
            out_channels = config.width << stage
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(Residual(in_channels, out_channels, stride))
                in_channels = out_channels
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(in_channels, classes)
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


# Baselines that a model must beat: a logistic regression on a few pixels, and the class shares.

log = logging.getLogger(__name__)

SIDE = 16
"""Pixels along each side of the grey image for the regression, at most the image's own size."""
C_VALUES = (0.01, 0.1, 1.0, 10.0)  # C is the inverse of the L2 penalty
HELD_OUT_EVERY = 5
MAX_ITERATIONS = 1000

Logits = Callable[[Samples], np.ndarray]


def fit_baselines(
    config: ImageConfig, classes: Classes, train: Dataset, limit: int
) -> Mapping[str, Logits]:
    """Fit the baselines; return each one's name and function from samples to logits (n, classes).

    At most ``limit`` images are used, spread evenly over the training split.

    Raises:
        TrainingError: a class has no image among them, or the regression does not converge.
    """
    small = config.model_copy(
        update={"size": min(SIDE, config.size), "channels": 1, "evaluated_part": 1.0}
    )
    count = min(limit, len(train))
    indices = np.arange(count) * len(train) // count
    design, targets = np.empty((count, small.size**2)), np.empty(count, np.int64)
    for start in range(0, count, 1024):
        samples = train.read(indices[start : start + 1024])
        stop = start + len(samples["label"])
        design[start:stop] = build_regression_rows(small, samples)
        targets[start:stop] = [classes.numbers[code] for code in samples["label"].tolist()]
    seen_count, class_count = len(np.unique(targets)), len(classes.names)
    if seen_count < class_count:
        raise TrainingError(
            f"the {count} training images that the baselines may use have {seen_count} of "
            f"{class_count} classes; raise evaluate.baseline_units"
        )
    model = _fit_logistic_regression(design, targets, _find_best_c(design, targets))
    shares = np.log(classes.shares)
    return {
        "logistic_regression": lambda samples: _compute_logits(
            model, build_regression_rows(small, samples)
        ),
        "majority": lambda samples: np.tile(shares, (len(samples["label"]), 1)),
    }


def build_regression_rows(config: ImageConfig, samples: Samples) -> np.ndarray:
    """Return the regression's inputs for images, float64 (n, pixels), from 0 to 1."""
    images = [
        decode_crop(sample["image"].tobytes(), config, None) for sample in split_batch(samples)
    ]
    return np.stack(images).reshape(len(images), -1) / 255


def _compute_logits(model: LogisticRegression, design: np.ndarray) -> np.ndarray:
    """Return a logit per class. If there are two, scikit-learn itself returns only the second."""
    logits = model.decision_function(design)
    return logits if logits.ndim == 2 else np.stack((np.zeros_like(logits), logits), axis=1)


def _find_best_c(design: np.ndarray, targets: np.ndarray) -> float:
    """Return the value of C_VALUES that predicts a held-out fifth of the rows best."""
    held_out = np.arange(len(targets)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    if len(np.unique(targets[~held_out])) < len(np.unique(targets)):
        log.warning("%d images are too few to choose C; it is set to 1", len(targets))
        return 1.0

    def compute_loss(c: float) -> float:
        logits = _compute_logits(
            _fit_logistic_regression(design[~held_out], targets[~held_out], c), design[held_out]
        )
        total = np.logaddexp.reduce(logits, axis=1)
        return float((total - logits[np.arange(len(logits)), targets[held_out]]).mean())

    best = min(C_VALUES, key=compute_loss)
    log.info("logistic regression: C = %g, of %s", best, C_VALUES)
    return best


def _fit_logistic_regression(
    design: np.ndarray, targets: np.ndarray, c: float
) -> LogisticRegression:
    """Fit a logistic regression. Raises TrainingError if it does not converge."""
    model = LogisticRegression(C=c, max_iter=MAX_ITERATIONS)
    model.fit(design, targets)
    if model.n_iter_.max() >= MAX_ITERATIONS:
        # A baseline that has not converged is too easy to beat, so the gate must not use it.
        raise TrainingError(
            f"the logistic regression (C = {c:g}) has not converged after {MAX_ITERATIONS} "
            "iterations; lower evaluate.baseline_units"
        )
    return model
