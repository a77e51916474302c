"""The Arrow type in which a column's values are given, and the way of whole numbers into it.

A float64 holds only every second whole number beyond 2**53. So a column whose dtype is an integer
never goes through one: not in a parser, not for the sake of a gap. Its values are exact, or refused
before anything rounds them.
"""

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from training.workloads import Column

CATEGORY = pa.dictionary(pa.int32(), pa.string())
BITS = np.finfo(np.float64).nmant + 1


def number_type(dtype: str) -> pa.DataType:
    """Return the type of a column's numbers in record batches: an integer dtype itself, else
    float64.
    """
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    return kind if pa.types.is_integer(kind) else pa.float64()


TYPES: dict[str, Callable[[Column], pa.DataType]] = {
    "text": lambda column: pa.string(),
    "category": lambda column: CATEGORY,
    "number": lambda column: number_type(column.dtype),
    "bytes": lambda column: pa.binary(),
    "list": lambda column: pa.list_(number_type(column.dtype)),
    "timestamp": lambda column: pa.int64(),
}


def record_type(column: Column) -> pa.DataType:
    """Return the type of a column's values in record batches."""
    return TYPES[column.kind](column)


def whole_number(value: str | float | Decimal, dtype: str, bits: int = BITS) -> int:
    """Return the value as an integer that ``dtype`` holds; a text must be a decimal number.

    A float, or a text written like one, is taken below 2**bits alone: from there on its writer may
    have rounded another number to it, as pandas does with a gap in the column.

    Raises:
        ValueError: the value is none; the message is what is expected instead.
    """
    info = np.iinfo(dtype)
    expectation = f"a whole number from {info.min} to {info.max} ({dtype})"
    try:
        exact = Decimal(value)
        is_within = info.min <= exact <= info.max and exact == exact.to_integral_value()
    except ArithmeticError:  # NaN; an exponent beyond 10**18
        is_within = False
    if not is_within:
        raise ValueError(expectation)
    as_float = isinstance(value, float) or (
        isinstance(value, str) and not value.lstrip("+-").isdecimal()
    )
    if as_float and abs(exact) >= 2**bits:
        raise ValueError(f"{expectation}, written as a float only below 2**{bits}")
    return int(exact)


def whole_numbers(values: pa.Array, dtype: str) -> tuple[pa.Array, dict[int, str]]:
    """Return numbers of any Arrow type as ``dtype``; also place → what is expected, of those that
    are bad, which are null. A float that is not finite is missing.
    """
    kind, bits, precise = number_type(dtype), BITS, True
    if pa.types.is_floating(values.type):
        bits = np.finfo(values.type.to_pandas_dtype()).nmant + 1
        values = pc.if_else(pc.is_finite(values), values, None)
        precise = (pc.max(pc.abs(values.cast(pa.float64()))).as_py() or 0) < 2**bits
    if precise:
        try:
            return values.cast(kind), {}
        except pa.ArrowInvalid:  # one of them does not fit
            pass
    integers: list[int | None] = []
    reasons: dict[int, str] = {}
    for place, value in enumerate(values.to_pylist()):
        try:
            integers.append(None if value is None else whole_number(value, dtype, bits))
        except ValueError as error:
            integers.append(None)
            reasons[place] = str(error)
    return pa.array(integers, kind), reasons
