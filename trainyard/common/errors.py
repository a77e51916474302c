"""Errors that Trainyard raises on purpose.

    TrainyardError            its message says what to do: shown without a traceback
    ├── RecipeError           a recipe's field, or a --set, is wrong
    ├── DefinitionError       a pipeline definition cannot be built, or cannot be run
    ├── PlanError             a plan is over budget, or cannot be applied as things are now
    ├── ServiceError          AWS (or the emulator) refused or could not be reached
    ├── DataError             raw data, a shard or a manifest is missing or damaged
    ├── StorageError          a file cannot be written (also an OSError)
    ├── TrainingError         training cannot start or go on (settings, NaN, checkpoint)
    │   └── LostRankError     another rank's fault: a restart continues
    ├── GateError             the gate cannot be evaluated on what it was given
    ├── ForesightError        a training cannot be foreseen
    └── EmulatorError         the emulator cannot start or cannot run a job

A message names the file, field or step, the value, what was expected, and the fix.
Command lines print it as one line and exit with status 1; steps write it to
``/opt/ml/output/failure`` (training) or ``/opt/ml/output/message`` (processing), from which
SageMaker takes the failure reason.
"""

from difflib import SequenceMatcher, get_close_matches

FEW = 5
"""Valid names that a message lists, at most."""


class TrainyardError(Exception):
    """Base class of the tree: caught once, at the edge of a command line or of a step."""


class RecipeError(TrainyardError):
    """A recipe's field, or a ``--set`` override, is wrong."""


class DefinitionError(TrainyardError):
    """A pipeline definition cannot be built, or cannot be run."""


class PlanError(TrainyardError):
    """A plan is over budget, or cannot be applied to the pipeline as it is now."""


class ServiceError(TrainyardError):
    """AWS, or the emulator in its place, refused a call or could not be reached."""


class DataError(TrainyardError):
    """Raw data, a shard or a manifest is missing or damaged."""


class StorageError(TrainyardError, OSError):
    """A file cannot be written: the disk is full, a quota or a limit is reached."""

    def __str__(self) -> str:
        # OSError's own has errno and strerror, once they are set.
        return str(self.args[0])


class TrainingError(TrainyardError):
    """Training cannot start or go on."""


class LostRankError(TrainingError):
    """Another rank is dead or silent; started again, the training goes on."""


class GateError(TrainyardError):
    """The gate cannot be evaluated on what it was given."""


class ForesightError(TrainyardError):
    """A training cannot be foreseen: the message says why, without a subject."""


class EmulatorError(TrainyardError):
    """The emulator cannot start, or cannot run a job."""


def edits(first: str, second: str) -> int:
    """Return how many letters were inserted, left out, changed or exchanged with the next."""
    before, row = [], [*range(len(second) + 1)]
    for i, letter in enumerate(first, 1):
        earlier, before, row = before, row, [i]
        for j, other in enumerate(second, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 < j and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]


def nearest(name: str, valid: list[str]) -> str:
    """Return ``nearest valid name: x`` when one is close, else the nearest few of all."""
    if close := get_close_matches(name, valid, n=FEW, cutoff=0.5):
        return f"nearest valid name: {min(close, key=lambda candidate: edits(name, candidate))}"
    if not valid:
        return "there is none to choose"
    if len(valid) <= FEW:
        return f"valid names: {', '.join(valid)}"
    candidates = sorted(
        valid, key=lambda candidate: -SequenceMatcher(None, name, candidate).ratio()
    )
    return f"the nearest of {len(valid)} valid names: {', '.join(candidates[:FEW])}"
