"""Description of a workload, as recipes need it. It imports no torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

if TYPE_CHECKING:
    from training.layout import Layout  # only for types: the shard step does not have this module


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the raw records."""

    kind: Literal["text", "category", "number", "bytes", "list", "timestamp"]
    """Kind of the values. ``text``: a string. ``category``: a string, integer or boolean, given as
    a string, in a ``pa.DictionaryArray``. ``number``: given as float64, or as ``dtype`` if that is
    an integer. ``bytes``: an image or a sound, given as ``pa.binary()``. ``list``: finite numbers,
    given as a list of such numbers. ``timestamp``: a time, given as int64: microseconds since 1970
    in UTC."""

    required: bool = True
    """True if a record without a value is bad, and quarantined."""

    limit: float = math.inf
    """A number of this magnitude or more makes its record bad, because samples cannot hold it."""

    length: int | None = None
    """Length of a ``list``. A list of another length makes its record bad. None: any length."""

    refuse: Callable[[bytes], str | None] | None = None
    """For ``bytes``: function that returns why a value is unusable (``is cut off``), or None. An
    unusable value makes its record bad, so that it is quarantined before training."""

    dtype: Literal[
        "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32",
        "float64",
    ] = "float32"  # fmt: skip
    """Type in which ``column_packing`` stores a number, or the numbers of a list. A value that an
    integer type cannot hold exactly makes its record bad. A float type rounds the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Description of a workload, as recipes need it."""

    config: type[BaseModel]
    """Type of its settings. Unknown fields must be errors (``extra="forbid"``)."""

    metrics: Mapping[str, Literal["lower", "higher"]]
    """For each metric of the evaluation, whether lower or higher values are better."""

    ranges: Mapping[str, float] = field(default_factory=dict)
    """For a metric, the largest difference of two values that an example can have, such as 1 for an
    accuracy. If each example is its own group, the gate's verdict then holds for any
    distribution."""

    primary_metric: str
    """Metric by which the model is compared with baselines."""

    baselines: tuple[str, ...]
    """Names of the baselines that the evaluation fits."""

    baselines_scored: bool = False
    """True if the workload has the baselines' scores of single examples
    (``Workload.baseline_scores``). The gate can then say by how much the model differs from each of
    them, with the uncertainty."""

    packed_with: tuple[str, ...] | None = None
    """Settings that the samples depend on. A change of other settings does not require
    sharding again. These settings must form a valid configuration by themselves. None: all
    settings."""

    refuse_split: Callable[[Any, int, int], str | None] = lambda config, tensor, pipeline: (
        "its model cannot be split: set tensor_parallel and pipeline_parallel to 1"
        if tensor * pipeline > 1
        else None
    )
    """Function from (settings, tensor-parallel ranks, pipeline stages) to why the model cannot be
    split over them, or None if it can."""

    refuse_layout: Callable[[Any, "Layout"], str | None] = lambda config, layout: (
        "its sequences cannot be shared by ranks: set context_parallel to 1"
        if layout.context_parallel > 1
        else None
    )
    """Function from (settings, layout of the ranks) to why the model cannot be distributed in this
    way, or None if it can. For checks that need more than the two numbers of ``refuse_split``."""

    compared_in: tuple[str, ...] | None = None
    """Metrics that are ratios of sums over examples, so that the scores contain them and they can
    be compared with a champion's. None: all metrics."""

    answer_numbers: tuple[str, ...] | None = None
    """Paths of the numbers in an endpoint's response, with dots between keys. A recipe may name
    them in ``deploy.compare.quality`` and ``monitor.prediction``. None: they are only known from
    actual responses."""

    slices: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Function from settings to the slices of the examples (``evaluate.slices``)."""

    has_summary: bool = False
    """True if its packing has ``examples``. The shard step then writes a summary of the train split
    (its examples' hashes and at most 2 GiB of its samples). The evaluation uses this to find leaks
    and to fit baselines, instead of reading the split."""

    base_differences: Callable[[Any, Mapping[str, Any]], list[str]] | None = None
    """Function from (settings, a Hugging Face config.json) to their differences as messages. It is
    empty if the training can start from that model's weights. None: the workload does not accept
    such models."""

    packages: tuple[str, ...] = ()
    """Packages that its code imports in addition to ``steps/requirements.txt``, by their names in
    ``locks/packages.txt``. The steps that run the code install them."""

    folder_slice: str | None = None
    """The slice that is an example's input (``data.inputs``), or the first folder of the raw data,
    which ``shard.by_folder`` keeps apart."""

    def get_input_slice(self, config: Any) -> str | None:
        """Return ``folder_slice``, or None if that name has another meaning, such as a column."""
        names = self.slices(config)
        return self.folder_slice if names.count(self.folder_slice or "") == 1 else None
