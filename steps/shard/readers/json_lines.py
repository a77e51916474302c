"""Read JSON Lines: each line that is not blank is a JSON object with the declared keys.

Keys that are not declared are ignored, but the whole line must be JSON and UTF-8. A declared key
that occurs twice makes the record bad, because parsers differ in which of the values they take.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from steps.shard.readers.batch import (
    Bad,
    Batch,
    build_parsed_schema,
    build_schema,
    combine_chunks,
    encode_category,
    make_excerpt,
)
from steps.shard.readers.column_values import (
    DECIMALS,
    TINY,
    BadRecord,
    Integer,
    Number,
    build_row_batch,
    convert_column,
    convert_json_row,
    decode_text,
    find_bad_lists,
    lacks_required,
    replace_infinities,
)
from steps.shard.readers.raw_bytes import CR, Block
from steps.shard.readers.text import parse_lines, refuse_nul
from training.workloads.column_packing import choose_record_type

if TYPE_CHECKING:
    from training.workloads import Column

SUFFIXES = (".jsonl", ".ndjson")
COMPRESSIBLE = True  # whether .gz or .zst may follow

WHITE_SPACE = b" \t\r\n"
FIRST_LINES = 100
"""Number of lines of a block that are examined for the type in which its categories are written."""


JSON_TYPES = {Integer: pa.int64(), bool: pa.bool_()}
"""Mapping of a category value's Python type to the type that it is parsed as; others are strings.
"""


class Object(list):
    """A JSON object as a list of (key, value) pairs, because a key may occur twice."""


DECODER = json.JSONDecoder(object_pairs_hook=Object, parse_int=Integer, parse_float=Number)


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield the objects in order. Raises the errors of ``raw_bytes.read_windows``."""
    yield from parse_lines(path, columns, parse_fast, parse_exactly)


def parse_fast(block: Block, columns: Mapping[str, "Column"]) -> Batch | None:
    """Return all records of the block, parsed with pyarrow, or None if one of them may be bad."""
    lines = _find_object_lines(block)
    if lines is None or not block.is_text():
        return None
    if not len(lines):
        return Batch(build_row_batch([], columns), lines, [])
    try:
        records = _parse_block(block, columns)
    except ValueError:  # pa.ArrowInvalid, or UnicodeDecodeError if its message is not UTF-8
        return None
    if len(records) != len(lines) or lacks_required(records, columns):
        return None
    return Batch(records, lines, [])


def _find_object_lines(block: Block) -> np.ndarray | None:
    """Return the numbers of the lines that are not blank.

    Return None unless each of them starts with { and ends with }. pyarrow ignores line ends, so an
    object could continue over one; with this check such data has } and { next to each other, which
    is not JSON. Two objects in one line are not detected here, but by the caller's count.
    """
    codes, starts, ends = block.codes, block.starts, block.ends
    ends = ends - ((ends > starts) & (codes[ends - 1] == CR))
    line_indices = np.flatnonzero(ends > starts)
    braces = np.all(codes[starts[line_indices]] == ord("{")) and np.all(
        codes[ends[line_indices] - 1] == ord("}")
    )
    return block.first + line_indices if braces else None


def _parse_block(block: Block, columns: Mapping[str, "Column"]) -> pa.RecordBatch:
    """Return the block's records, parsed by pyarrow; raise ``ValueError`` if one may be bad."""
    plain, decimals = _parse_schema(columns), _parse_schema(columns, DECIMALS)
    try:
        return _parse_as(plain, block, columns)
    except pa.ArrowInvalid:
        if plain == decimals or TINY.search(block.buffer):
            raise
    return _parse_as(decimals, block, columns)  # perhaps integers written as floats, such as 12.0


def _parse_as(fields: pa.Schema, block: Block, columns: Mapping[str, "Column"]) -> pa.RecordBatch:
    """Parse the block with the types of ``fields``. Raises as ``_parse_block``."""
    # A category may be written as a string, integer or boolean. Its first value decides the type;
    # pyarrow refuses the block if others differ.
    kinds = dict(zip(columns, fields.types, strict=True))
    for name, value in _find_first_values(block, columns).items():
        kinds[name] = JSON_TYPES.get(type(value), kinds[name])
    table = pyarrow.json.read_json(
        pa.BufferReader(block.buffer),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(block.codes) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(kinds), unexpected_field_behavior="ignore"
        ),
    )
    arrays = []
    for field in fields:
        array = combine_chunks(table[field.name]).cast(field.type)
        column = columns[field.name]
        array = replace_infinities(array) if field.type == pa.float64() else array
        array, reasons = convert_column(field.name, column, array)
        if column.kind == "list":
            reasons = find_bad_lists(field.name, array, column.length)
        if reasons:
            raise ValueError("a record is bad")
        arrays.append(encode_category(array, column.kind))
    return pa.RecordBatch.from_arrays(arrays, schema=build_schema(columns))


def _parse_schema(
    columns: Mapping[str, "Column"], integers: pa.DataType | None = None
) -> pa.Schema:
    """Return the schema to parse with: ``build_parsed_schema``, but lists as arrays."""
    lists = {
        n: choose_record_type(column) for n, column in columns.items() if column.kind == "list"
    }
    return pa.schema(
        [(f.name, lists.get(f.name, f.type)) for f in build_parsed_schema(columns, integers)]
    )


def _find_first_values(block: Block, columns: Mapping[str, "Column"]) -> dict[str, Any]:
    """Return the first value of each category in the block's first lines.

    Categories without a value there are left out.
    """
    sought = {name for name, column in columns.items() if column.kind == "category"}
    values: dict[str, Any] = {}
    for _, raw in islice(block.iter_lines(), FIRST_LINES if sought else 0):
        if len(values) == len(sought):
            break
        try:
            pairs = DECODER.decode(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            continue  # the line is blank, or pyarrow will refuse it too
        values = {k: v for k, v in pairs if k in sought and v is not None} | values
    return values


def parse_exactly(block: Block, columns: Mapping[str, "Column"]) -> Batch:
    """Return all records, parsed line by line, with the reasons for bad ones."""
    rows, lines, bad_records = [], [], []
    for number, raw in block.iter_lines():
        if not raw.strip(WHITE_SPACE):
            continue
        try:
            rows.append(_parse_row(raw, columns))
            lines.append(number)
        except BadRecord as error:
            bad_records.append(Bad(number, str(error), make_excerpt(raw)))
    return Batch(build_row_batch(rows, columns), np.array(lines, np.int64), bad_records)


def _parse_row(raw: bytes, columns: Mapping[str, "Column"]) -> list[Any]:
    """Return the declared columns of one line; raise ``BadRecord`` if it cannot be used."""
    refuse_nul(raw)
    text = decode_text(raw).strip(WHITE_SPACE.decode())
    try:
        json_object = DECODER.decode(text)
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg} (at character {error.pos + 1})"
        return _read_like_pyarrow(raw, columns, reason)
    except RecursionError:
        return _read_like_pyarrow(raw, columns, "nested too deeply")
    if not isinstance(json_object, Object):
        raise BadRecord("JSON, but not an object")
    keys = [key for key, _ in json_object if key in columns]
    for key in keys:
        if keys.count(key) > 1:
            raise BadRecord(f"key {key!r} occurs twice")
    return convert_json_row(dict(json_object), columns)


def _read_like_pyarrow(raw: bytes, columns: Mapping[str, "Column"], reason: str) -> list[Any]:
    """Return the row as pyarrow reads it, or raise ``BadRecord`` with ``reason`` if it refuses it.

    Unlike Python's parser, pyarrow accepts ``Inf`` and any depth of nesting. Such a record is read
    in a block without bad records, so it must also be read in a block with some.
    """
    line = raw.strip(WHITE_SPACE)
    batch = parse_fast(Block(line, 0, len(line), 1), columns)
    if batch is None:
        raise BadRecord(reason)
    return list(batch.records.to_pylist()[0].values())
