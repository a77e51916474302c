"""Rules for what a checkpoint holds: everything that a training needs to resume."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.contract_tests.contract import Fault, place, rule
from training.contract_tests.trial import SEED, Trial, losses, mode
from training.export import artifact
from training.export.weight_location import Held

INTERNAL = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
INSERT = "register it: nn.Parameter, nn.ModuleList, nn.ModuleDict, self.register_buffer(…)"


@rule("fresh weights", "the same seed gives the same model")
def repeatable(trial: Trial) -> Iterator[Fault]:
    one, other = (trial.model().state_dict() for _ in range(2))
    if one.keys() != other.keys():
        names = ", ".join(sorted(one.keys() ^ other.keys())[:3])
        yield Fault(
            f"two models have other weights: {names}",
            place(trial.one, "model"),
            "build the same layers in the same order each time",
        )
        return
    if differ := [name for name in one if not torch.equal(one[name], other[name])]:
        yield Fault(
            f"{differ[0]} differs between two models of one seed",
            place(trial.one, "model"),
            "initialise by torch's generator: nn.init, torch.randn; no numpy, no generator of its "
            "own, no time",
        )


@rule("weights are registered", "every weight and layer is in state_dict()")
def registered(trial: Trial) -> Iterator[Fault]:
    model = trial.model()
    known = {id(one) for one in (*model.parameters(), *model.buffers(), *model.modules())}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in INTERNAL or name.startswith("_"):
                continue
            for found in _hidden(value):
                if id(found) in known:
                    continue
                kind = "layer" if isinstance(found, nn.Module) else "weight"
                yield Fault(
                    f"{f'{path}.{name}'.lstrip('.')} holds a {kind} that state_dict() has not",
                    place(trial.one, "model"),
                    INSERT,
                )
                break


def _hidden(value: Any) -> Iterator[nn.Module | Tensor]:
    """Yield weights and layers that a plain attribute holds."""
    if isinstance(value, nn.Module) or (isinstance(value, Tensor) and value.requires_grad):
        yield value
    elif isinstance(value, Mapping):
        yield from (found for inner in value.values() for found in _hidden(inner))
    elif isinstance(value, list | tuple):
        yield from (found for inner in value for found in _hidden(inner))


@rule("state is saved", "what a training step changes is in state_dict()")
def saved(trial: Trial) -> Iterator[Fault]:
    workload = trial.workload()
    model = trial.model(workload)
    before = _unsaved(model, workload)
    solver = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-3)
    for _ in range(2):
        torch.manual_seed(SEED)
        losses(workload, model, trial.batch())[1].backward()
        solver.step()
    after = _unsaved(model, workload)
    for name in after:
        if name not in before or not _equal(before[name], after[name]):
            yield Fault(
                f"a training step changes {name}, which no checkpoint has",
                place(workload, "model" if name.startswith("model") else "loss"),
                "make it a persistent buffer (self.register_buffer), or a function of the step's "
                "samples alone",
            )


def _unsaved(model: nn.Module, workload: Any) -> dict[str, Any]:
    """Return copies of attributes and buffers that ``state_dict`` does not contain."""
    found = {f"workload.{n}": v for n, v in vars(workload).items() if _plain(v)}
    for path, module in model.named_modules():
        kept = module._non_persistent_buffers_set
        attributes = {name: module._buffers[name] for name in kept}
        attributes |= {n: v for n, v in vars(module).items() if n not in INTERNAL and _plain(v)}
        found |= {f"model.{path}.{n}".replace("..", "."): v for n, v in attributes.items()}
    return {n: v.detach().clone() if isinstance(v, Tensor) else v for n, v in found.items()}


def _plain(value: Any) -> bool:
    return isinstance(value, int | float | str | Tensor) or (
        isinstance(value, tuple) and all(map(_plain, value))
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    return type(one) is type(other) and bool(one == other)


@rule("export and restore", "the exported model is the one that was trained")
def exported(trial: Trial) -> Iterator[Fault]:
    model = trial.model()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights, _ = trial.one.export(dict(state))
    back = trial.one.restore(dict(weights))
    wrong = [n for n in state if n not in back or not torch.equal(back[n], state[n])]
    if wrong or back.keys() != state.keys():
        names = ", ".join(sorted(wrong or back.keys() - state.keys())[:3])
        yield Fault(
            f"restore(export(weights)) has other {names}",
            place(trial.one, "restore", "export"),
            "let restore undo all that export does",
        )
        return
    yield from _reopened(trial, model, state)


def _reopened(trial: Trial, model: nn.Module, state: dict[str, Tensor]) -> Iterator[Fault]:
    with tempfile.TemporaryDirectory() as name:
        description = {"workload": trial.name, "workload_config": dict(trial.settings)}
        artifact.save(Path(name), Held(state), trial.one, description, [])
        workload, opened, _ = artifact.open_artifact(Path(name))
    with mode(model, training=False), torch.no_grad():
        before, _ = losses(trial.one, model, trial.batch())
        after, _ = losses(workload, opened, trial.batch())
    if not torch.equal(before, after):
        apart = float((before - after).abs().max())
        yield Fault(
            f"the model that is read from its archive gives outputs that differ by {apart:g}",
            place(trial.one, "model"),
            "keep all that shapes outputs in state_dict(), or in files() as fit() learned it",
        )
