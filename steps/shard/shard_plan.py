"""Plan for sharding the raw data: the only input of the workers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from training.workloads import Column, Packing, load_packing
from trainyard.common.hashes import hash_json

SPLITS = ("train", "validation", "test")
SUMMARY = "summary"
"""Output folder with a summary of the train split for an evaluation (``split_summary``)."""
EXAMPLES, SAMPLE = f"{SUMMARY}/examples", f"{SUMMARY}/sample"
FORMAT = 2  # version of the output; raise it if the same settings start to give other shards


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parsed arguments of the shard job, paths of one instance, and what is derived from them."""

    workload: str
    config: Mapping[str, Any]
    """The workload's settings."""
    assets: Path | None
    """Folder that contains tokenizer.json, or None if there is no tokenizer."""
    key: str | None
    validation_share: float
    test_share: float
    shard_bytes: int
    max_bad_share: float
    unique: tuple[str, ...] | None
    by_folder: bool
    inputs: bool = False
    """True if the first folder of each path is one of several inputs, so that the labels are the
    folders below it.
    """
    summary: bool = False
    """True if a summary of the train split is also written."""
    output: Path
    host: str

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the folders below ``output`` that contain shards."""
        return (*SPLITS, EXAMPLES, SAMPLE) if self.summary else SPLITS

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders below ``output`` that contain manifests."""
        return (*self.tables, SUMMARY) if self.summary else SPLITS

    @property
    def scratch(self) -> Path:
        """Return the folder of this instance's sorted runs. It is deleted when the job succeeds."""
        return self.output / "scratch" / self.host

    @property
    def progress(self) -> Path:
        """Return the folder of this instance's progress records."""
        return self.output / "progress" / self.host

    @cached_property
    def packing(self) -> Packing:
        """Return the workload's packing, which turns records into samples.

        Raises:
            TrainingError: the workload does not exist, or one of its settings is wrong.
        """
        return load_packing(self.workload, self.config, self.assets)

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the columns in which duplicates are equal; if empty, no duplicate is dropped."""
        return self.packing.identity if self.unique is None else self.unique

    @property
    def columns(self) -> dict[str, Column]:
        """Return all columns to read: the workload's, those of ``identity``, and the key."""
        columns = {name: Column("category", required=False) for name in self.identity}
        columns |= self.packing.columns
        if self.key is not None:
            key = columns.get(self.key, Column("category"))
            columns[self.key] = replace(key, required=True)
        return columns

    @cached_property
    def settings_sha256(self) -> str:
        """Return one SHA-256 of all settings on which the output depends, in hexadecimal."""
        decides = {
            "format": FORMAT,
            "workload": [self.workload, self.config, self.packing.info],
            "fields": [[n, f.dtype, f.shape] for n, f in self.packing.fields.items()],
            "columns": [
                [n, c.kind, c.required, str(c.limit), *([c.length] if c.length else [])]
                for n, c in self.columns.items()
            ],
            "split": [self.key, self.validation_share, self.test_share],
            "shard_bytes": self.shard_bytes,
            "identity": self.identity,
            "by_folder": self.by_folder,
            # Only if it is set, so that the hash of other plans is the same as before it existed.
            **({"inputs": True} if self.inputs else {}),
        }
        return hash_json(decides)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker: with the hash computed here, without the packing.

        The packing may contain a tokenizer, which is not sent: every worker loads its own.
        """
        state = self.__dict__ | {"settings_sha256": self.settings_sha256}
        return {name: value for name, value in state.items() if name != "packing"}
