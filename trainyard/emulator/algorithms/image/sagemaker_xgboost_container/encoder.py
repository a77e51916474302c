"""Convert request bodies (CSV and libsvm) to matrices, with the functions that AWS's image has.

They behave as github.com/aws/sagemaker-xgboost-container (Apache-2.0),
``src/sagemaker_xgboost_container/encoder.py``, at the version in the image's tag. recordio-protobuf
is not read.
"""

import csv
import os
from typing import Any

import numpy as np
import xgboost
from sagemaker_containers.beta.framework import errors  # type: ignore[import-not-found]
from scipy import sparse

from trainyard.emulator.algorithms.xgboost.facts import parse_version

LIBSVM = ("text/libsvm", "text/x-libsvm")


def csv_to_array(input: str | bytes, dtype: Any = None) -> np.ndarray:  # noqa: A002
    """Return the rows of CSV without a label column. An empty cell becomes NaN (a missing value).

    Raises ValueError, or csv.Error if no separator is found. An empty line is an error, also at the
    end: the algorithm's server strips whitespace at both ends first, and a script's ``input_fn``
    must do so itself.
    """
    text = input if isinstance(input, str) else bytes(input).decode()
    lines = text.split("\n")
    delimiter = csv.Sniffer().sniff(lines[0][:512]).delimiter
    # For a single column, the sniffer takes a letter or digit to be the separator.
    separator = "," if delimiter.isalnum() else delimiter
    return np.array([[c or "nan" for c in line.split(separator)] for line in lines]).astype(dtype)


def csv_to_dmatrix(input: str | bytes, dtype: Any = None) -> xgboost.DMatrix:  # noqa: A002
    """Return the result of ``csv_to_array`` as a DMatrix."""
    return xgboost.DMatrix(csv_to_array(input, dtype))


def libsvm_to_csr(text: str) -> sparse.csr_matrix:
    """Parse libsvm text as the algorithm's server does, without labels. Raises ValueError."""
    entries = [
        (row, item.split(":")[:2])
        for row, line in enumerate(text.split("\n"))
        for item in line.split(" ")
        if ":" in item
    ]
    columns = np.array([int(pair[0]) for _, pair in entries], int)
    # Indices start at 0, as in training. From version 3.0 on, indices that start at 1 are shifted.
    if columns.size and columns.min() >= 1 and _has_version_3():
        columns = columns - 1
    values = np.array([float(pair[1]) for _, pair in entries])
    return sparse.csr_matrix((values, ([row for row, _ in entries], columns)))


def libsvm_to_dmatrix(string_like: str | bytes) -> xgboost.DMatrix:
    """Parse libsvm text as AWS's image does for a script's ``input_fn``. Raises ValueError."""
    text = string_like if isinstance(string_like, str) else bytes(string_like).decode()
    # From version 3.0 on, labels are skipped, and a feature that a line does not name is 0, not
    # missing.
    if _has_version_3():
        lines = [" ".join(line.split()) for line in text.strip().split("\n")]
        rows = libsvm_to_csr("\n".join(lines))
        rows.resize(len(lines), rows.shape[1])
        return xgboost.DMatrix(rows.toarray())
    # Up to version 1.7, XGBoost's own parser reads it: the first item is the label, whatever it is.
    items = [line.split()[1:] for line in text.splitlines() if line.strip()]
    rows = libsvm_to_csr("\n".join(" ".join(line) for line in items))
    rows.resize(len(items), rows.shape[1])
    return xgboost.DMatrix(rows)


_DECODERS = {"text/csv": csv_to_dmatrix} | dict.fromkeys(LIBSVM, libsvm_to_dmatrix)


def decode(obj: str | bytes, content_type: str) -> xgboost.DMatrix:
    """Return the matrix in the request body ``obj``. Raises UnsupportedFormatError, ValueError."""
    kind = content_type.partition(";")[0].strip()
    if kind not in _DECODERS:
        raise errors.UnsupportedFormatError(kind)
    return _DECODERS[kind](obj)


def _has_version_3() -> bool:
    """Return whether the server's image has version 3.0 or later. Return False outside a server."""
    image = os.environ.get("TRAINYARD_IMAGE", "")
    return bool(image) and parse_version(image) >= (3, 0)
