"""A workload says what is trained; the rest of Trainyard does not know what a token is.

A workload is a package of two modules:

``config``    torch-free, so that recipes are checked with it; holds ``SPEC: WorkloadSpec``
``workload``  holds ``Workload``, which does what the protocol below says

It is named in a recipe by its package (``my_package.my_workload``), or by its bare name when it is
one of those in this folder.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ValidationError

from errors import TrainingError

if TYPE_CHECKING:
    import numpy as np
    import torch

    from training.data.dataset import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What a recipe needs to know of a workload."""

    config: type[BaseModel]
    """Its settings; unknown fields must be errors (``extra="forbid"``)."""

    metrics: Mapping[str, Literal["lower", "higher"]]
    """Every metric of the evaluation → which values are better."""

    primary_metric: str
    """The metric that baselines are compared in."""

    baselines: tuple[str, ...]
    """Names of the baselines that the evaluation fits."""


class Packer(Protocol):
    """Turns the records of one split into samples, in the order in which they come."""

    def add(self, record: Mapping[str, Any]) -> "np.ndarray":
        """The samples, shape (n, width), that are complete with this record; n may be 0.

        Raises:
            DataError: the record is bad; it is quarantined.
        """

    def flush(self) -> "np.ndarray":
        """What is left, as samples of full width."""


class Workload(Protocol):
    """What shard, train and evaluate ask of a workload."""

    width: int
    """Elements in a sample."""
    dtype: str
    """``uint16`` or ``uint32``."""
    info: dict[str, Any]
    """Written into every manifest and model: what it takes to read the samples again."""

    def __init__(self, config: BaseModel, assets: Path | None) -> None:
        """``assets``: folder with further files (a tokenizer.json), or None."""

    def files(self) -> Mapping[str, bytes]:
        """Files that must travel with the dataset and the model, by name."""

    def packer(self) -> Packer: ...

    def model(self) -> "torch.nn.Module":
        """The model with fresh weights from torch's current random state."""

    def loss(
        self, model: "torch.nn.Module", batch: "torch.Tensor"
    ) -> tuple["torch.Tensor", "torch.Tensor"]:
        """(sum of the losses, number of units) of samples of shape (n, width).

        A sum and a count, not a mean: ranks and micro-batches with unequal counts add up right.
        """

    def evaluate(self, model: "torch.nn.Module", test: "Dataset") -> dict[str, dict[str, float]]:
        """Metric → ``value`` and ``standard_error`` on the test split, on the model's device."""

    def baselines(
        self, train: "Dataset", test: "Dataset", limit: int
    ) -> dict[str, dict[str, float]]:
        """Baseline → metric → value on the test split, fitted on ``limit`` units of train."""


def spec(name: str) -> WorkloadSpec:
    """The torch-free description of a workload.

    Raises:
        TrainingError: there is no such workload.
    """
    return _module(name, "config").SPEC


def load(name: str, config: Mapping[str, Any], assets: Path | None = None) -> Workload:
    """The workload itself.

    Raises:
        TrainingError: there is no such workload, or a setting is wrong.
    """
    try:
        typed = spec(name).config.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise TrainingError(
            f"workload_config.{field}: is {first['input']!r}; {first['msg']}"
        ) from None
    return _module(name, "workload").Workload(typed, assets)


def read_settings(text: str) -> dict[str, Any]:
    """A workload's settings as a job is given them: a JSON object.

    Raises:
        TrainingError: ``text`` is none.
    """
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise TrainingError(f"workload_config: is no JSON ({error}): {text!r}") from None
    if not isinstance(settings, dict):
        raise TrainingError(f"workload_config: is {text}; expected a JSON object of settings")
    return settings


def _module(name: str, part: str) -> Any:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        raise TrainingError(f"workload {name!r}: is no name of a Python package")
    package = name if "." in name else f"{__name__}.{name}"
    try:
        return import_module(f"{package}.{part}")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.{part}".startswith(error.name):
            raise  # the workload is there; something that it imports is not
        shipped = sorted(path.parent.name for path in Path(__file__).parent.glob("*/config.py"))
        raise TrainingError(
            f"workload {name!r}: there is no {package}.{part}; shipped with Trainyard: "
            f"{', '.join(shipped)}; your own: package.module, workload.source names its folder"
        ) from None
