"""Rules about what a checkpoint contains: everything that is needed to resume a training run."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.export import artifact
from training.export.weight_location import LocalWeights
from training.tools.contract_tests.contract import (
    SEED,
    Fault,
    Trial,
    compute_loss,
    locate_method,
    rule,
    switch_mode,
)

INTERNAL = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
INSERT = "register it: nn.Parameter, nn.ModuleList, nn.ModuleDict, self.register_buffer(…)"


@rule("fresh weights", "the same seed gives the same model")
def check_fresh_weights(trial: Trial) -> Iterator[Fault]:
    first, other = (trial.create_model().state_dict() for _ in range(2))
    if first.keys() != other.keys():
        names = ", ".join(sorted(first.keys() ^ other.keys())[:3])
        yield Fault(
            f"two models have different weights: {names}",
            locate_method(trial.shared_workload, "model"),
            "build the same layers in the same order each time",
        )
        return
    if differ := [name for name in first if not torch.equal(first[name], other[name])]:
        yield Fault(
            f"{differ[0]} differs between two models of one seed",
            locate_method(trial.shared_workload, "model"),
            "initialise with torch's generator: nn.init, torch.randn; not with numpy, another "
            "generator or the time",
        )


@rule("weights are registered", "every weight and layer is in state_dict()")
def check_registration(trial: Trial) -> Iterator[Fault]:
    model = trial.create_model()
    registered_ids = {
        id(member) for member in (*model.parameters(), *model.buffers(), *model.modules())
    }
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in INTERNAL or name.startswith("_"):
                continue
            for member in _iter_hidden_weights(value):
                if id(member) in registered_ids:
                    continue
                kind = "layer" if isinstance(member, nn.Module) else "weight"
                yield Fault(
                    f"{f'{path}.{name}'.lstrip('.')} holds a {kind} that is not in state_dict()",
                    locate_method(trial.shared_workload, "model"),
                    INSERT,
                )
                break


def _iter_hidden_weights(value: Any) -> Iterator[nn.Module | Tensor]:
    """Yield the weights and layers in the value of a plain attribute."""
    if isinstance(value, nn.Module) or (isinstance(value, Tensor) and value.requires_grad):
        yield value
    elif isinstance(value, Mapping):
        yield from (member for inner in value.values() for member in _iter_hidden_weights(inner))
    elif isinstance(value, list | tuple):
        yield from (member for inner in value for member in _iter_hidden_weights(inner))


@rule("state is saved", "what a training step changes is in state_dict()")
def check_saved_state(trial: Trial) -> Iterator[Fault]:
    workload = trial.create_workload()
    model = trial.create_model(workload)
    before = _copy_unsaved_values(model, workload)
    solver = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-3)
    for _ in range(2):
        torch.manual_seed(SEED)
        compute_loss(workload, model, trial.make_batch())[1].backward()
        solver.step()
    after = _copy_unsaved_values(model, workload)
    for name in after:
        if name not in before or not _is_equal(before[name], after[name]):
            yield Fault(
                f"a training step changes {name}, which no checkpoint contains",
                locate_method(workload, "model" if name.startswith("model") else "loss"),
                "make it a persistent buffer (self.register_buffer), or a function of the step's "
                "samples alone",
            )


def _copy_unsaved_values(model: nn.Module, workload: Any) -> dict[str, Any]:
    """Return copies of the attributes and buffers that ``state_dict`` does not contain."""
    values = {f"workload.{n}": v for n, v in vars(workload).items() if _is_plain(v)}
    for path, module in model.named_modules():
        buffer_names = module._non_persistent_buffers_set
        attributes = {name: module._buffers[name] for name in buffer_names}
        attributes |= {n: v for n, v in vars(module).items() if n not in INTERNAL and _is_plain(v)}
        values |= {f"model.{path}.{n}".replace("..", "."): v for n, v in attributes.items()}
    return {n: v.detach().clone() if isinstance(v, Tensor) else v for n, v in values.items()}


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, text, tensor, or a tuple of such values."""
    return isinstance(value, int | float | str | Tensor) or (
        isinstance(value, tuple) and all(map(_is_plain, value))
    )


def _is_equal(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return value.shape == other.shape and bool(torch.equal(value, other))
    return type(value) is type(other) and bool(value == other)


@rule("export and restore", "the exported model is the one that was trained")
def check_export(trial: Trial) -> Iterator[Fault]:
    model = trial.create_model()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights, _ = trial.shared_workload.export(dict(state))
    back = trial.shared_workload.restore(dict(weights))
    wrong = [n for n in state if n not in back or not torch.equal(back[n], state[n])]
    if wrong or back.keys() != state.keys():
        names = ", ".join(sorted(wrong or back.keys() - state.keys())[:3])
        yield Fault(
            f"restore(export(weights)) changes {names}",
            locate_method(trial.shared_workload, "restore", "export"),
            "restore() must undo all that export() does",
        )
        return
    with tempfile.TemporaryDirectory() as name:
        description = {"workload": trial.name, "workload_config": dict(trial.settings)}
        artifact.save_artifact(
            Path(name), LocalWeights(state), trial.shared_workload, description, []
        )
        workload, reopened_model, _ = artifact.load_artifact(Path(name))
    with switch_mode(model, training=False), torch.no_grad():
        before, _ = compute_loss(trial.shared_workload, model, trial.make_batch())
        after, _ = compute_loss(workload, reopened_model, trial.make_batch())
    if not torch.equal(before, after):
        difference = float((before - after).abs().max())
        yield Fault(
            f"the model that is read from its archive gives outputs that differ by {difference:g}",
            locate_method(trial.shared_workload, "model"),
            "keep all that affects outputs in state_dict(), or in files() as fit() learned it",
        )
