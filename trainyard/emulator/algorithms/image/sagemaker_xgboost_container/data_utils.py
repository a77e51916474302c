"""``get_dmatrix``: read training data, with the reader of the emulator's XGBoost job."""

from pathlib import Path

import xgboost

from trainyard.emulator.algorithms.xgboost.channel_data import read_channel
from trainyard.emulator.algorithms.xgboost.facts import find_file_format
from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError


def get_dmatrix(
    data_path: str, content_type: str, csv_weights: int = 0, is_pipe: bool = False
) -> xgboost.DMatrix | None:
    """Return the labelled rows of ``data_path``, a file or folder. Return None if it has no rows.

    ``content_type`` is ``csv``, ``libsvm``, ``parquet`` or one of their media types.
    ``csv_weights`` 1 means that the second column of CSV is the weight. Raises UserError for data
    that cannot be read and for Pipe mode.
    """
    form = find_file_format(content_type)
    if is_pipe or form not in ("csv", "libsvm", "parquet"):
        feature = "Pipe mode" if is_pipe else f"content type {content_type!r}"
        raise UserError(
            f"get_dmatrix: {feature} is not read here: use csv, libsvm or parquet files"
        )
    rows = read_channel(Path(data_path), form, bool(csv_weights))
    if rows is None:
        return None
    return xgboost.DMatrix(rows.features, label=rows.label, weight=rows.weight)
