"""``rabit_run``: call a function on all hosts of a job. Here a job has only one host."""

from collections.abc import Callable, Sequence
from typing import Any

from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError


def rabit_run(
    exec_fun: Callable[..., object],
    args: dict[str, Any],
    include_in_training: bool,
    hosts: Sequence[str],
    current_host: str,
    update_rabit_args: bool = False,
    **ports_and_attempts: int | None,
) -> None:
    """Call ``exec_fun(**args)``. With ``update_rabit_args``, ``is_master=True`` is added to
    ``args``.

    Raises UserError if there are several hosts, or if this host has no data.
    """
    if len(hosts) > 1 or not include_in_training:
        problem = f"{len(hosts)} hosts" if len(hosts) > 1 else f"{current_host} has no data"
        raise UserError(f"rabit_run: {problem}: expected one instance, with data; use one instance")
    exec_fun(**args | ({"is_master": True} if update_rabit_args else {}))
