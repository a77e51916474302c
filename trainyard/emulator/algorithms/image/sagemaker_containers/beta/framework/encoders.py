"""Convert arrays from and to CSV, JSON and NPY, as ``sagemaker_containers._encoders`` does."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from sagemaker_containers.beta.framework import content_types, errors  # type: ignore[import-not-found]


def csv_to_numpy(string_like: str, dtype: Any = None) -> np.ndarray:
    """Return the cells as an array without axes of length one. Without ``dtype``, it is float64 if
    all cells are numbers, and text otherwise.

    Raises ClientError if the text is not CSV, or if a cell cannot be converted to ``dtype``.
    """
    try:
        rows = list(csv.reader(io.StringIO(string_like), strict=True))
        array = np.array(rows).squeeze()
    except (csv.Error, TypeError, ValueError) as error:
        raise errors.ClientError(f"Error while decoding csv: {error}") from error
    try:
        return array.astype(dtype)
    except ValueError as error:
        if dtype is None:
            return array
        raise errors.ClientError(
            f"Error while writing numpy array: {error}. dtype is: {dtype}"
        ) from error


def array_to_csv(array_like: Any) -> str:
    """Return the array as lines of CSV. A vector becomes a column."""
    array = np.array(array_like)
    text = io.StringIO()
    try:
        rows = array.reshape(-1, 1) if array.ndim == 1 else array
        csv.writer(text, lineterminator="\n", strict=True).writerows(rows)
    except csv.Error as error:
        raise errors.ClientError(f"Error while encoding csv: {error}") from error
    return text.getvalue()


def json_to_numpy(string_like: str | bytes, dtype: Any = None) -> np.ndarray:
    """Return the array that a JSON document contains."""
    return np.array(json.loads(string_like), dtype=dtype)


def array_to_json(array_like: Any) -> str:
    """Return a JSON document in which arrays are lists."""
    return json.dumps(array_like, default=_to_list)


def _to_list(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else json.JSONEncoder().default(value)


def npy_to_numpy(npy_array: bytes) -> np.ndarray:
    """Return the array of an NPY file. A pickle in it can run code, as in AWS's image."""
    return np.load(io.BytesIO(npy_array), allow_pickle=True)


def array_to_npy(array_like: Any) -> bytes:
    """Return the array as an NPY file."""
    file = io.BytesIO()
    np.save(file, array_like)
    return file.getvalue()


def array_to_recordio_protobuf(array_like: Any, labels: Any = None) -> bytes:
    """Raise NotImplementedError: recordio-protobuf is not provided here."""
    raise NotImplementedError(
        "array_to_recordio_protobuf is not provided outside AWS's image: use CSV, JSON or NPY"
    )


_DECODERS: dict[str, Callable[[Any], np.ndarray]] = {
    content_types.NPY: npy_to_numpy,
    content_types.CSV: csv_to_numpy,
    content_types.JSON: json_to_numpy,
}
_ENCODERS: dict[str, Callable[[Any], str | bytes]] = {
    content_types.NPY: array_to_npy,
    content_types.CSV: array_to_csv,
    content_types.JSON: array_to_json,
}


def decode(obj: Any, content_type: str) -> np.ndarray:
    """Return ``obj`` decoded as ``content_type``, which must have no parameters. Raises
    UnsupportedFormatError for any other type.
    """
    if content_type not in _DECODERS:
        raise errors.UnsupportedFormatError(content_type)
    return _DECODERS[content_type](obj)


def encode(array_like: Any, content_type: str) -> str | bytes:
    """Return the array encoded as ``content_type``, which must have no parameters. Raises
    UnsupportedFormatError for any other type.
    """
    if content_type not in _ENCODERS:
        raise errors.UnsupportedFormatError(content_type)
    return _ENCODERS[content_type](array_like)
