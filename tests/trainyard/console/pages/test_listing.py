"""The list of runs for the filters of an address."""

from typing import Any

import pytest
from werkzeug.datastructures import MultiDict

from trainyard.console.account_cache import Account
from trainyard.console.execution_index import Index, Run
from trainyard.console.pages.runs import asked, listing

ARN = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/{}/execution/{}"


def run(number: int, pipeline: str = "churn", **more: Any) -> Run:
    fields: dict[str, Any] = {
        "pipeline": pipeline,
        "id": f"id{number}",
        "name": f"run-{number}",
        "status": "Succeeded",
        "started": 1_000.0 * number,
        "changed": 1_000.0 * number + 60 - number,
        "description": "",
        "reason": "",
        "names": ("Rate", "Data"),
        "values": (str(10.0**-number), "s3://bkt/a"),
    }
    return Run(**fields | more)


RUNS = [
    run(1),
    run(2, status="Failed", reason="Step failure: out of memory"),
    run(3, "vision", names=("Size",), values=("224",), description="the großen pictures"),
    run(4, values=("1e-4", "s3://bkt/b")),
]


class Known(Index):
    """An index that has read ``RUNS``."""

    def __init__(self) -> None:
        super().__init__(Account())

    def runs(self) -> list[tuple[str, Run]]:
        return [(ARN.format(one.pipeline, one.id), one) for one in RUNS]


def found(address: str) -> list[str]:
    pairs = [tuple(part.split("=", 1)) for part in address.split("&") if part]
    shown = listing(Known(), asked(MultiDict(pairs)))
    return [one.id for _, one in shown.runs]


@pytest.mark.parametrize(
    ("address", "ids"),
    [
        ("", ["id4", "id3", "id2", "id1"]),
        ("q=MEMORY", ["id2"]),
        ("q=pipeline/vision/execution/id3", ["id3"]),
        ("q=GROSSEN", ["id3"]),
        ("q=s3://bkt/b churn", ["id4"]),
        ("q=churn pictures", []),
        ("pipeline=vision", ["id3"]),
        ("status=Failed", ["id2"]),
        ("status=Failed&status=Succeeded&pipeline=churn", ["id4", "id2", "id1"]),
        ("p.Rate==0.0001", ["id4"]),
        ("p.Rate=1e", ["id4"]),
        ("p.Data=BKT/A&p.Rate==0.01", ["id2"]),
        ("p.Nothing=1", []),
        ("since=1970-01-01T00:50:00+00:00", ["id4", "id3"]),
        ("until=1970-01-01T00:20:00+00:00", ["id1"]),
        ("sort=started", ["id1", "id2", "id3", "id4"]),
        ("sort=duration", ["id4", "id3", "id2", "id1"]),
        ("sort=p.Rate", ["id4", "id2", "id1", "id3"]),
        ("sort=-p.Rate", ["id1", "id2", "id4", "id3"]),
        ("sort=status", ["id2", "id4", "id3", "id1"]),
        ("sort=no such column", ["id1", "id2", "id3", "id4"]),
        ("rows=3&page=2", ["id1"]),
        ("rows=3&page=9", ["id1"]),
        ("rows=three&page=-1", ["id4", "id3", "id2", "id1"]),
    ],
)
def test_the_address_chooses(address: str, ids: list[str]):
    assert found(address) == ids


def test_what_is_not_understood_is_said():
    query = asked(MultiDict({"since": "yesterday", "rows": "many"}))
    assert [fault.partition(":")[0] for fault in query.faults] == [
        "rows=many is not a whole number",
        "since=yesterday is not a time such as 2026-11-22T09",
    ]


def test_parameters_that_differ_are_columns_unless_others_are_asked_for():
    def columns(**args: str) -> list[str]:
        shown = listing(Known(), asked(MultiDict(args)))
        return [name for name in shown.columns if name.startswith("p.")]

    assert "pipeline" in listing(Known(), asked(MultiDict())).columns
    assert "pipeline" not in listing(Known(), asked(MultiDict({"pipeline": "vision"}))).columns
    assert columns() == ["p.Rate", "p.Data"]
    assert columns(status="Failed") == ["p.Rate", "p.Data"]  # one run: nothing differs
    assert columns(pipeline="vision") == ["p.Size"]
