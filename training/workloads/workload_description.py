"""What a recipe needs to know of a workload; no torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

if TYPE_CHECKING:
    from training.layout import Layout  # which does not travel with the shard step


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the raw records."""

    kind: Literal["text", "category", "number", "bytes", "list", "timestamp"]
    """``text``: a string. ``category``: a string, integer or boolean, given as a
    string, in a ``pa.DictionaryArray``. ``number``: given as float64. ``bytes``: an image, a sound,
    given as ``pa.binary()``. ``list``: finite numbers, given as a list of float64. ``timestamp``:
    a moment, given as int64: microseconds since 1970 in UTC."""

    required: bool = True
    """Whether a record without a value is bad, and quarantined."""

    limit: float = math.inf
    """A number of this magnitude or more makes its record bad: the samples cannot hold it."""

    length: int | None = None
    """How many numbers a ``list`` has; another one makes its record bad. None: any number."""

    refuse: Callable[[bytes], str | None] | None = None
    """Of ``bytes``: why a value is of no use (``is cut off``), None when it is; then its record is
    bad, and quarantined before anything is trained on it."""

    dtype: Literal[
        "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64", "float32", "float64"
    ] = "float32"
    """As what ``by_columns`` stores a number, or those of a list."""


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

    baselines_scored: bool = False
    """Whether the workload gives their scores of single examples (``Workload.baseline_scores``), so
    that the gate can say how far the model is from each of them, and how sure that is."""

    packed_with: tuple[str, ...] | None = None
    """Settings that the samples depend on: a change of another one does not shard again. They
    must make a valid configuration by themselves. None: all settings."""

    refuse_split: Callable[[Any, int, int], str | None] = lambda config, tensor, pipeline: (
        "its model is made for no split: set tensor_parallel and pipeline_parallel to 1"
        if tensor * pipeline > 1
        else None
    )
    """(settings, tensor-parallel ranks, pipeline stages) → why the model cannot be split so."""

    refuse_layout: Callable[[Any, "Layout"], str | None] = lambda config, layout: (
        "its sequences are not shared by ranks: set context_parallel to 1"
        if layout.context_parallel > 1
        else None
    )
    """(settings, how the ranks share the training) → why the model cannot be laid out so, where it
    takes more than the two numbers of ``refuse_split`` to see it."""

    compared_in: tuple[str, ...] | None = None
    """Metrics that are ratios of sums over examples, so that the scores carry them and a champion
    can be compared in them. None: all metrics."""

    slices: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Settings → what its examples can be sliced by (``evaluate.slices``)."""

    sketched: bool = False
    """Whether its examples have sketches, by which nearly equal ones are found."""

    summarised: bool = False
    """Whether its packing gives ``examples``. The shard step then writes a summary of the train
    split, the names of its examples and at most 2 GiB of its samples, and the evaluation looks for
    leaks and fits baselines on that: it does not read the split."""

    base_differences: Callable[[Any, Mapping[str, Any]], list[str]] | None = None
    """(settings, a Hugging Face config.json) → what makes them another model, in words; an empty
    list where the training can begin with its weights. None: it takes no such model."""

    packages: tuple[str, ...] = ()
    """What its code imports beyond ``steps/requirements.txt``: names in ``locks/packages.txt``. The
    steps that run it install them."""

    folder_slice: str | None = None
    """The one of the slices that is the input that an example comes from (``data.inputs``), or the
    first folder of the raw data; ``shard.by_folder`` keeps folders apart."""

    def sliced_by_input(self, config: Any) -> str | None:
        """``folder_slice``; None where what is called so is something else: a column, say."""
        names = self.slices(config)
        return self.folder_slice if names.count(self.folder_slice or "") == 1 else None
