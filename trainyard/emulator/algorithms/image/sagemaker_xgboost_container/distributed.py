"""``rabit_run``: a function on all hosts of a job, of which there is one here."""

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
    """Call ``exec_fun(**args)``; with ``update_rabit_args`` args say that the host ``is_master``.

    Raises UserError for several hosts, and where this one has no data.
    """
    if len(hosts) > 1 or not include_in_training:
        what = f"{len(hosts)} hosts" if len(hosts) > 1 else f"{current_host} has no data"
        raise UserError(f"rabit_run: {what}: expected one instance, with data; take one")
    exec_fun(**args | ({"is_master": True} if update_rabit_args else {}))
