"""Errors that Trainyard raises on purpose.

    TrainyardError            its message says what to do; it is shown without a traceback
    ├── RecipeError           a recipe's field, or a --set, is wrong
    ├── DefinitionError       a pipeline definition cannot be built, or cannot be run
    ├── PlanError             a plan is over budget, or cannot be applied as things are now
    ├── ServiceError          AWS (or the emulator) refused or could not be reached
    ├── DataError             raw data, a shard or a manifest is missing or damaged
    ├── StorageError          a file cannot be written (also an OSError)
    ├── TrainingError         training cannot start or continue (settings, NaN, checkpoint)
    │   └── LostRankError     another rank has failed; a restart continues the training
    ├── GateError             the gate cannot be evaluated on what it was given
    ├── ForesightError        a training run's time, memory or cost cannot be predicted
    └── EmulatorError         the emulator cannot start or cannot run a job

A message names the file, field or step, the value, what was expected, and the fix.
Command lines print it as one line, and exit with status 1. Steps write it to
``/opt/ml/output/failure`` (training) or ``/opt/ml/output/message`` (processing), from which
SageMaker reads the failure reason.
"""

from difflib import SequenceMatcher, get_close_matches

FEW = 5
"""Maximum number of valid names that a message lists."""


class TrainyardError(Exception):
    """Base class of these errors. Only the main function of a command or step catches it."""


class RecipeError(TrainyardError):
    """A recipe's field, or a ``--set`` override, is wrong."""


class DefinitionError(TrainyardError):
    """A pipeline definition cannot be built, or cannot be run."""


class PlanError(TrainyardError):
    """A plan is over budget, or cannot be applied to the pipeline as it is now."""


class ServiceError(TrainyardError):
    """AWS, or the emulator instead of it, refused a call or could not be reached."""


class DataError(TrainyardError):
    """Raw data, a shard or a manifest is missing or damaged."""


class StorageError(TrainyardError, OSError):
    """A file cannot be written: the disk is full, or a quota or a limit is reached."""

    def __str__(self) -> str:
        # OSError's own text would show errno and strerror once they are set.
        return str(self.args[0])


class TrainingError(TrainyardError):
    """Training cannot start or continue."""


class LostRankError(TrainingError):
    """Another rank is dead or does not respond. If it is restarted, the training continues."""


class GateError(TrainyardError):
    """The gate cannot be evaluated on what it was given."""


class ForesightError(TrainyardError):
    """A training run cannot be predicted. The message says why, but does not name the run."""


class EmulatorError(TrainyardError):
    """The emulator cannot start, or cannot run a job."""


def count_edits(first: str, second: str) -> int:
    """Return the number of edits from one word to the other (Damerau-Levenshtein distance).

    An edit inserts, removes or changes a letter, or exchanges two neighbouring ones.
    """
    before, row = [], [*range(len(second) + 1)]
    for i, letter in enumerate(first, 1):
        earlier, before, row = before, row, [i]
        for j, other in enumerate(second, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 < j and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]


def suggest_nearest(name: str, valid: list[str]) -> str:
    """Return a hint: ``nearest valid name: x`` if one is close, otherwise a few of the names."""
    if close := get_close_matches(name, valid, n=FEW, cutoff=0.5):
        return (
            f"nearest valid name: {min(close, key=lambda candidate: count_edits(name, candidate))}"
        )
    if not valid:
        return "there is none to choose"
    if len(valid) <= FEW:
        return f"valid names: {', '.join(valid)}"
    candidates = sorted(
        valid, key=lambda candidate: -SequenceMatcher(None, name, candidate).ratio()
    )
    return f"the nearest of {len(valid)} valid names: {', '.join(candidates[:FEW])}"
