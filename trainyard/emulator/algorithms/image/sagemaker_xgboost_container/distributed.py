"""``rabit_run``: a function on all hosts of a job, inside XGBoost's collective between them."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xgboost import collective

from trainyard.emulator.algorithms.xgboost.cluster import joined
from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError


def rabit_run(
    exec_fun: Callable[..., object],
    args: dict[str, Any],
    include_in_training: bool,
    hosts: Sequence[str],
    current_host: str,
    first_port: int | None = None,
    second_port: int | None = None,
    max_connect_attempts: int | None = None,
    connect_retry_timeout: int = 3,
    update_rabit_args: bool = False,
) -> None:
    """Call ``exec_fun(**args)``; with ``update_rabit_args`` args say which host ``is_master``.

    Ports and attempts are the emulator's own. Raises UserError where a host has no data: the real
    one leaves such a host out.
    """
    with joined(list(hosts), current_host, logging.info) as cluster:
        without = np.array([not include_in_training], np.int64)
        if cluster.size > 1:
            without = collective.allreduce(without, collective.Op.SUM)
        if without[0]:
            raise UserError(
                f"rabit_run: {without[0]} of {len(hosts)} hosts have no data to train on, which is "
                "not done here: give each host a file, or take fewer instances"
            )
        exec_fun(**args | ({"is_master": cluster.is_master} if update_rabit_args else {}))
