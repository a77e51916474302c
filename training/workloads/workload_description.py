"""Description of a workload that recipes need; no torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

if TYPE_CHECKING:
    from training.layout import Layout  # the module is not shipped with the shard step


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the raw records."""

    kind: Literal["text", "category", "number", "bytes", "list", "timestamp"]
    """Kind of the values. ``text``: a string. ``category``: a string, integer or boolean, given as
    a string, in a ``pa.DictionaryArray``. ``number``: given as float64, or as ``dtype`` where that
    is an integer. ``bytes``: an image, a sound, given as ``pa.binary()``. ``list``: finite numbers,
    given as a list of the same. ``timestamp``: a moment, given as int64: microseconds since 1970 in
    UTC."""

    required: bool = True
    """True if a record without a value is bad, and quarantined."""

    limit: float = math.inf
    """Magnitude from which on a number makes its record bad: the samples cannot hold it."""

    length: int | None = None
    """Length of a ``list``; another length makes its record bad. None: any length."""

    refuse: Callable[[bytes], str | None] | None = None
    """For ``bytes``: function that returns why a value is unusable (``is cut off``), or None; an
    unusable value makes its record bad, quarantined before training."""

    dtype: Literal[
        "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32",
        "float64",
    ] = "float32"  # fmt: skip
    """Type in which ``column_packing`` stores a number, or those of a list. A value that an integer
    type does not hold exactly makes its record bad; a float type rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Description of a workload that recipes need."""

    config: type[BaseModel]
    """Type of its settings; unknown fields must be errors (``extra="forbid"``)."""

    metrics: Mapping[str, Literal["lower", "higher"]]
    """Metric of the evaluation → which values are better."""

    ranges: Mapping[str, float] = field(default_factory=dict)
    """Metric → largest difference of two values that an example can have, such as 1 for an
    accuracy: where each example is its own group, the gate's verdict then holds for any
    distribution."""

    primary_metric: str
    """Metric in which baselines are compared."""

    baselines: tuple[str, ...]
    """Names of the baselines that the evaluation fits."""

    baselines_scored: bool = False
    """True if the workload has the baselines' scores of single examples
    (``Workload.baseline_scores``), so that the gate can say how far the model is from each of them,
    with its uncertainty."""

    packed_with: tuple[str, ...] | None = None
    """Settings that the samples depend on; changing another one does not shard again. They must
    form a valid configuration by themselves. None: all settings."""

    refuse_split: Callable[[Any, int, int], str | None] = lambda config, tensor, pipeline: (
        "its model is made for no split: set tensor_parallel and pipeline_parallel to 1"
        if tensor * pipeline > 1
        else None
    )
    """(settings, tensor-parallel ranks, pipeline stages) → why the model cannot be split over them,
    or None."""

    refuse_layout: Callable[[Any, "Layout"], str | None] = lambda config, layout: (
        "its sequences are not shared by ranks: set context_parallel to 1"
        if layout.context_parallel > 1
        else None
    )
    """(settings, layout of the ranks) → why the model cannot be laid out in this way, or None; for
    checks that need more than the two numbers of ``refuse_split``."""

    compared_in: tuple[str, ...] | None = None
    """Metrics that are ratios of sums over examples, so that the scores contain them and a champion
    can be compared in them. None: all metrics."""

    answer_numbers: tuple[str, ...] | None = None
    """Paths of the numbers in an endpoint's answer, a dot leading into an object: what a recipe may
    name in ``deploy.compare.quality`` and ``monitor.prediction``. None: answers alone show them."""

    slices: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Function from settings to the slices of the examples (``evaluate.slices``)."""

    has_summary: bool = False
    """True if its packing has ``examples``. The shard step then writes a summary of the train split
    (its examples' hashes and at most 2 GiB of its samples), and the evaluation finds leaks and fits
    baselines from that instead of reading the split."""

    base_differences: Callable[[Any, Mapping[str, Any]], list[str]] | None = None
    """(settings, a Hugging Face config.json) → their differences in words; empty if the training
    can start from its weights. None: the workload takes no such model."""

    packages: tuple[str, ...] = ()
    """Packages that its code imports beyond ``steps/requirements.txt``: names in
    ``locks/packages.txt``. The steps that run it install them."""

    folder_slice: str | None = None
    """The slice that is an example's input (``data.inputs``), or the first folder of the raw data;
    ``shard.by_folder`` keeps folders apart."""

    def sliced_by_input(self, config: Any) -> str | None:
        """Return ``folder_slice``; None if that name means something else, such as a column."""
        names = self.slices(config)
        return self.folder_slice if names.count(self.folder_slice or "") == 1 else None
