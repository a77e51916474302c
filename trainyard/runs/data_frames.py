"""Executions, their steps, metrics and scores as pandas frames, for a notebook.

Each call reads anew from AWS, or from the service at AWS_ENDPOINT_URL. An empty frame has the same
columns and dtypes. Column ``execution`` is an ARN, by which frames are merged.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import ServiceError, TrainyardError
from trainyard.language.parameters import declared, parse
from trainyard.language.statuses import ENDED
from trainyard.language.steps import named
from trainyard.plan.prices import Prices, load
from trainyard.runs.job_cost import CHARGED, spent
from trainyard.runs.results import Made

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXT, NUMBER, COUNT, FLAG = "string", "float64", "Int64", "boolean"
TIME = "datetime64[ns, UTC]"

TYPED = {"String": TEXT, "Integer": COUNT, "Float": NUMBER, "Boolean": FLAG}
"""Type of a pipeline's parameter → dtype."""


def installed() -> Any:
    """Return the module pandas, which is imported only when a frame is created.

    Raises:
        TrainyardError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as missing:
        raise TrainyardError(f"no {missing.name} here: pip install {missing.name}") from None
    return pandas


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> "DataFrame":
    """Return a frame of those columns; missing keys of a row become missing values.

    Raises:
        TrainyardError: pandas is not installed.
    """
    pandas = installed()
    found = list(rows)
    data = {name: _column([row.get(name) for row in found], of) for name, of in columns.items()}
    frame: DataFrame = pandas.DataFrame(data)
    return frame


def _column(values: list[Any], dtype: str) -> "Series":
    pandas = installed()
    column: Series = pandas.Series(values, dtype="object" if dtype == TIME else dtype)
    if dtype == TIME:  # the times come in the local time zone of their days
        column = pandas.to_datetime(column, utc=True).dt.as_unit("ns")
    return column


PAGE = 100
"""Largest number of results of Search and the List operations (botocore: MaxResults)."""

RESOURCE = "PipelineExecution"


def pipelines(sagemaker: Any, name: str | None = None) -> list[dict[str, Any]]:
    """Return DescribePipeline's answers of all pipelines, or of the named one.

    Raises:
        ServiceError: the pipeline does not exist, or AWS refuses.
    """
    with service_errors(f"reading pipeline {name}" if name else "listing the pipelines"):
        pages = sagemaker.get_paginator("list_pipelines").paginate() if name is None else ()
        listed = [one for page in pages for one in page.get("PipelineSummaries", ())]
        names = [name] if name else [one["PipelineName"] for one in listed if "PipelineName" in one]
        return [{"PipelineName": each, **_pipeline(sagemaker, each)} for each in names]


def _pipeline(sagemaker: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = sagemaker.describe_pipeline(PipelineName=name)
    return found


def executions(sagemaker: Any, pipeline: str) -> list[dict[str, Any]]:
    """Return ListPipelineExecutions' summaries that have an ARN, the newest first.

    Raises:
        ServiceError: the pipeline does not exist, or AWS refuses.
    """
    with service_errors(f"listing the executions of {pipeline}"):
        pages = sagemaker.get_paginator("list_pipeline_executions").paginate(
            PipelineName=pipeline, SortOrder="Descending", PaginationConfig={"PageSize": PAGE}
        )
        found = [one for page in pages for one in page.get("PipelineExecutionSummaries", ())]
    return [one for one in found if one.get("PipelineExecutionArn")]


def records(
    sagemaker: Any, summaries: list[dict[str, Any]], arn: str | None = None
) -> Iterator[dict[str, Any]]:
    """Iterate over each listed execution's record from Search, or else from Describe.

    Args:
        summaries: ListPipelineExecutions' summaries.
        arn: ARN of their pipeline, if they have only one.

    Raises:
        ServiceError: AWS refuses.
    """
    with service_errors("reading the executions"):
        known = {one.get("PipelineExecutionArn"): one for one in _searched(sagemaker, arn)}
        for summary in summaries:
            record = known.get(summary["PipelineExecutionArn"])
            status = summary.get("PipelineExecutionStatus")
            if record is None or record.get("PipelineExecutionStatus") != status:
                record = _described(sagemaker, summary["PipelineExecutionArn"])
            yield {**summary, **record}


def _searched(sagemaker: Any, arn: str | None) -> Iterator[Mapping[str, Any]]:
    request: dict[str, Any] = {"Resource": RESOURCE, "MaxResults": PAGE}
    if arn:
        only = {"Name": "PipelineArn", "Operator": "Equals", "Value": arn}
        request["SearchExpression"] = {"Filters": [only]}
    for page in sagemaker.get_paginator("search").paginate(**request):
        yield from (found.get(RESOURCE) or {} for found in page.get("Results", ()))


def _described(sagemaker: Any, arn: str) -> dict[str, Any]:
    pages = sagemaker.get_paginator("list_pipeline_parameters_for_execution").paginate(
        PipelineExecutionArn=arn
    )
    given = [one for page in pages for one in page.get("PipelineParameters", ())]
    found: dict[str, Any] = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
    return {**found, "PipelineParameters": given}


if TYPE_CHECKING:
    from pandas import DataFrame

THREADS = 8
"""Number of executions that are read at the same time."""

RUNS = {"pipeline": TEXT, "execution": TEXT, "name": TEXT, "status": TEXT, "started": TIME,
        "ended": TIME, "seconds": NUMBER, "reason": TEXT}  # fmt: skip
STEPS = {"execution": TEXT, "step": TEXT, "type": TEXT, "status": TEXT, "started": TIME,
         "ended": TIME, "seconds": NUMBER, "attempts": COUNT, "cached": FLAG, "job": TEXT,
         "usd": NUMBER, "usd_estimated": FLAG, "reason": TEXT}  # fmt: skip
METRICS = {"execution": TEXT, "step": TEXT, "metric": TEXT, "training_step": NUMBER, "time": TIME,
           "value": NUMBER, "source": TEXT}  # fmt: skip
SCORES = {"execution": TEXT, "step": TEXT, "source": TEXT, "score": TEXT, "value": NUMBER}

Row = dict[str, Any]
Which = str | Iterable[str]
"""A pipeline's name, an execution's ARN, or several ARNs such as a frame's column ``execution``."""


def frame(pipeline: str | None = None, region: str | None = None) -> "DataFrame":
    """Return a row for each execution of the pipeline, or of all pipelines, the newest first.

    ``seconds`` counts until now while it runs. Each parameter is a column ``parameters.<Name>``, of
    the type that the pipeline's definition gives it now; text if pipelines give it different
    types, or if an earlier execution has a value of another type.

    Raises:
        ServiceError: the pipeline does not exist, or AWS refuses.
        TrainyardError: pandas is not installed.
    """
    installed()
    sagemaker, now = client("sagemaker", region), datetime.now(UTC)
    found = pipelines(sagemaker, pipeline)
    summaries: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for one in found:
        own = executions(sagemaker, one["PipelineName"])
        names |= {each["PipelineExecutionArn"]: one["PipelineName"] for each in own}
        summaries += own
    arn = found[0].get("PipelineArn") if pipeline else None
    rows = [
        _run(names[record["PipelineExecutionArn"]], record, now)
        for record in (records(sagemaker, summaries, arn) if summaries else ())
    ]
    rows.sort(key=lambda row: (row["started"] is not None, row["started"]), reverse=True)
    return table(rows, RUNS | _parameters(found, rows))


def steps(which: Which, region: str | None = None) -> "DataFrame":
    """Return a row for each step that has begun, in the order in which they began.

    ``usd`` is the cost so far of the machines of the step's job: 0 if the step starts no job or
    reuses another execution's result, NaN if the price is unknown. ``usd_estimated`` is true if
    the price was derived from others.

    Args:
        which: a pipeline's name for all of its executions, an execution's ARN, or several ARNs.
        region: region of the pipeline; the environment's by default.

    Raises:
        ServiceError: the pipeline or execution does not exist, or AWS refuses.
        TrainyardError: pandas is not installed.
    """
    prices = load(client("sagemaker", region).meta.region_name)
    return table(_each(which, region, lambda made: _steps(made, prices)), STEPS)


def metrics(which: Which, region: str | None = None, *, series: bool = False) -> "DataFrame":
    """Return a row per metric of each training job: the latest value, or all with ``series``.

    The latest values are DescribeTrainingJob's. The series is what MetricDefinitions find in the
    log of the job's first instance, beside the step, epoch or round that its line names
    (``training_step``, NaN without one); if the log is gone, CloudWatch's means over time.
    ``source`` says which it is: ``last values``, ``log`` or ``CloudWatch``.

    Args, Raises: as ``steps``.
    """
    return table(_each(which, region, lambda made: made.metrics(series=series)), METRICS)


def scores(which: Which, region: str | None = None) -> "DataFrame":
    """Return a row for each number in the property files of processing steps, by its path in the
    JSON, and for each that comes with a registered model package: customer metadata, ModelQuality
    report.

    ``source`` is the property file's name, or the package's ARN. A file that another job has
    written since is left out with a warning: its numbers are not this execution's.

    Args, Raises: as ``steps``.
    """
    return table(_each(which, region, lambda made: made.scores()), SCORES)


# executions


def _run(pipeline: str, record: Mapping[str, Any], now: datetime) -> Row:
    started, status = record.get("CreationTime") or record.get("StartTime"), _status(record)
    ended = record.get("LastModifiedTime") if status in ENDED else None
    until = ended if status in ENDED else now
    given = record.get("PipelineParameters") or ()
    arn = record["PipelineExecutionArn"]
    return {
        "pipeline": pipeline,
        "execution": arn,
        "name": record.get("PipelineExecutionDisplayName") or arn.rpartition("/")[2],
        "status": status,
        "started": started,
        "ended": ended,
        "seconds": (until - started).total_seconds() if started and until else None,
        "reason": record.get("FailureReason") or record.get("PipelineExecutionFailureReason"),
        **{f"parameters.{one['Name']}": one.get("Value") for one in given if "Name" in one},
    }


def _status(record: Mapping[str, Any]) -> str:
    return str(record.get("PipelineExecutionStatus") or "Unknown")


def _parameters(found: Iterable[Mapping[str, Any]], rows: list[Row]) -> dict[str, str]:
    """Return column → dtype of every parameter; the rows' values are converted to it."""
    kinds: dict[str, set[str]] = {}
    for one in found:
        for name, entry in declared(json.loads(one.get("PipelineDefinition") or "{}")).items():
            kinds.setdefault(f"parameters.{name}", set()).add(entry.get("Type", "String"))
    given = chain.from_iterable(rows)
    columns = dict.fromkeys([*kinds, *(name for name in given if name.startswith("parameters."))])
    return {name: _converted(name, kinds.get(name, set()), rows) for name in columns}


def _converted(name: str, kinds: set[str], rows: list[Row]) -> str:
    kind = next(iter(kinds)) if len(kinds) == 1 else "String"
    texts = [row.get(name) for row in rows]
    try:
        values = [None if text is None else parse(text, kind) for text in texts]
    except ValueError:
        return TEXT
    if any(isinstance(value, int) and abs(value) >= 2**63 for value in values):
        return TEXT
    for row, value in zip(rows, values, strict=True):
        row[name] = value
    return TYPED[kind]


# steps, metrics and scores of executions


def _each(which: Which, region: str | None, read: Callable[[Made], Iterable[Row]]) -> Iterator[Row]:
    """Iterate over the rows of each execution, which several threads read."""
    make = cache(client)
    with ThreadPoolExecutor(THREADS) as pool:
        ready = [Made(arn, region, make) for arn in _arns(which, make("sagemaker", region))]
        for rows in pool.map(lambda made: list(read(made)), ready):
            yield from rows


def _arns(which: Which, sagemaker: Any) -> list[str]:
    if not isinstance(which, str):
        return list(dict.fromkeys(which))
    if "/execution/" in which:
        return [which]
    return [one["PipelineExecutionArn"] for one in executions(sagemaker, which)]


def _steps(made: Made, prices: Prices) -> Iterator[Row]:
    definition = made.execution.definition()
    for step in made.execution.steps():
        entry = named(definition.get("Steps"), step.name)
        usd, estimated = _cost(made, step, prices)
        yield {
            "execution": made.execution.arn,
            "step": step.name,
            "type": entry.type if entry else next(iter(step.metadata), None),
            "status": step.status,
            "started": step.started,
            "ended": step.ended,
            "seconds": step.seconds,
            "attempts": step.attempts,
            "cached": step.cached,
            "job": step.job[1] if step.job else None,
            "usd": usd,
            "usd_estimated": estimated,
            "reason": step.reason or None,
        }


def _cost(made: Made, step: Any, prices: Prices) -> tuple[float | None, bool]:
    if step.cached or step.reused:
        return 0.0, False
    if not step.charged:
        return (None if CHARGED & set(step.metadata) else 0.0), False
    try:
        found = spent(step.charged[0], made.job(step), prices, datetime.now(UTC))
    except ServiceError as error:
        warnings.warn(f"the cost of step {step.name} is not known: {error}", stacklevel=2)
        return None, False
    return found.usd, found.estimated
