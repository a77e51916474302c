"""Requests of the XGBoost server as matrices, from CSV and libsvm; not from recordio-protobuf."""

import csv
import os
from typing import Any

import numpy as np
import xgboost
from scipy import sparse

LIBSVM = ("text/libsvm", "text/x-libsvm")


def csv_to_dmatrix(
    input: str | bytes,  # noqa: A002 - the image's name
    dtype: Any = float,
) -> xgboost.DMatrix:
    """Rows without a label; an empty cell is missing.

    Raises ValueError, and csv.Error when no separator is found.
    """
    text = _text(input)
    found = csv.Sniffer().sniff(text.split("\n")[0][:512]).delimiter
    separator = "," if found.isalnum() or found == "." else found
    rows = [[cell or "nan" for cell in line.split(separator)] for line in text.split("\n")]
    return xgboost.DMatrix(np.array(rows).astype(dtype or float))


def libsvm_to_dmatrix(string_like: str | bytes) -> xgboost.DMatrix:
    """Labels are passed over. Raises ValueError.

    Indices count from 0, as in training; from 3.0 on, the server shifts those that count from 1.
    """
    entries = [
        (row, int(index), float(value))
        for row, line in enumerate(_text(string_like).split("\n"))
        for index, colon, value in (item.partition(":") for item in line.split())
        if colon
    ]
    rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
    columns = columns - 1 if columns.min() >= 1 and _shifts() else columns
    return xgboost.DMatrix(sparse.csr_matrix((values, (rows, columns))))


def decode(obj: str | bytes, content_type: str) -> xgboost.DMatrix:
    """The matrix of a request of that type. Raises ValueError for one that is not read."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/csv":
        return csv_to_dmatrix(obj)
    if kind in LIBSVM:
        return libsvm_to_dmatrix(obj)
    raise ValueError(f"Content type {content_type} is not read: expected text/csv or {LIBSVM}")


def _shifts() -> bool:
    """Whether the image is of 3.0 or newer. Its tags up to v1.7-1 read libsvm by XGBoost alone."""
    tag = os.environ.get("TRAINYARD_IMAGE", "").rsplit("/", 1)[-1].partition(":")[2]
    major = tag.partition(".")[0]
    return "." in tag and major.isdecimal() and int(major) >= 3


def _text(body: str | bytes) -> str:
    """Without the ends that are blank, as the server hands it on."""
    return (body if isinstance(body, str) else bytes(body).decode(errors="replace")).strip()
