"""DataProcessing: InputFilter → model → JoinSource → OutputFilter, on records of CSV and JSON.

A row of CSV is an array; a joined row is the input's columns, then the output's. To a JSON object
the output is added as ``SageMakerOutput``; any other input becomes ``SageMakerInput`` beside it.
"""

import csv
import io
import json
from typing import Any

from trainyard.emulator.transform.json_path import compiled
from trainyard.emulator.transform.records import LINES, media_type

WHOLE = "$"
KINDS = (*LINES, "application/json")


class DataProcessing:
    """A job's filters. Raises ValueError for a job that cannot have them, or a record that does
    not fit them."""

    def __init__(self, asked: dict, source: dict, output: dict) -> None:
        """``asked``, ``source``, ``output``: DataProcessing, TransformInput, TransformOutput."""
        self.joins = asked.get("JoinSource", "None") == "Input"
        first, last = asked.get("InputFilter") or WHOLE, asked.get("OutputFilter") or WHOLE
        self._first = None if first == WHOLE else compiled(first)
        self._last = None if last == WHOLE else compiled(last)
        self._kind = media_type(source.get("ContentType"))
        self._answer_kind = media_type(output.get("Accept")) or self._kind
        if self.active and self._kind not in KINDS:
            raise ValueError(
                f"DataProcessing: TransformInput.ContentType {self._kind!r}: expected text/csv, "
                "application/json or application/jsonlines"
            )
        if self.joins:
            _check_join(self._kind, self._answer_kind, source, output)

    @property
    def active(self) -> bool:
        """Whether answers are looked at record by record."""
        return bool(self.joins or self._first or self._last)

    def asked(self, record: bytes) -> bytes:
        """What of a record the model gets."""
        if not self._first:
            return record
        return _write(self._first(_read(record, self._kind)), self._kind)

    def result(self, record: bytes, answer: bytes) -> bytes:
        """What of a record and the model's answer to it is kept."""
        if not self.joins:
            if not self._last:
                return answer
            return _write(self._last(_read(answer, self._answer_kind)), self._answer_kind)
        if self._kind == "text/csv" and not self._last:
            return record.removesuffix(b"\r") + b"," + answer
        joined = _joined(self._kind, _read(record, self._kind), _read(answer, self._answer_kind))
        return _write(self._last(joined) if self._last else joined, self._kind)


def _check_join(kind: str, answer_kind: str, source: dict, output: dict) -> None:
    if kind != answer_kind:
        raise ValueError(
            f"JoinSource Input: Accept {answer_kind!r} must be the ContentType {kind!r}"
        )
    split, assemble = source.get("SplitType", "None"), output.get("AssembleWith", "None")
    if split != assemble:
        raise ValueError(f"JoinSource Input: AssembleWith {assemble} must be the SplitType {split}")


def _joined(kind: str, record: Any, answer: Any) -> Any:
    if kind == "text/csv":
        return [*record, *answer]
    if isinstance(record, dict):
        return record | {"SageMakerOutput": answer}
    return {"SageMakerInput": record, "SageMakerOutput": answer}


def _read(record: bytes, kind: str) -> Any:
    try:
        text = record.decode()
        if kind == "text/csv":
            return next(csv.reader([text]), [])
        return json.loads(text)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"a record is no {kind}: {error}: {record[:80]!r}") from None


def _write(value: Any, kind: str) -> bytes:
    if kind != "text/csv":
        return json.dumps(value).encode()
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(value if isinstance(value, list) else [value])
    return row.getvalue().encode()
