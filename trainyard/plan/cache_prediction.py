"""Predict which steps the next execution would take from the cache, and why the others would run.

A step is taken from the cache if its key (the part of its arguments that the cache compares, see
``trainyard.language.definition_document``) has the same values as in an earlier execution in which
it succeeded, and which is not too old. Parameters have their default values. An input from a step
that runs again is new, unless that step's output has the same location in every execution.

"Run" means an execution of the pipeline.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal

from botocore.exceptions import ClientError

from trainyard.aws_clients import read_error_code
from trainyard.language.definition_document import (
    Step,
    iter_steps,
    parse_duration,
    select_cache_key_arguments,
)
from trainyard.language.evaluation import (
    Unknown,
    UnstartedScope,
    evaluate_value,
    iter_unknowns,
    parse_arn_variables,
)
from trainyard.language.expressions import (
    ExpressionError,
    iter_known_references,
    look_up_path,
    resolve_parameters,
)
from trainyard.language.step_types import get_step_type
from trainyard.plan.definition_diff import (
    CODE,
    Change,
    Fields,
    flatten_fields,
    format_path,
    format_reference,
    index_steps,
    iter_field_changes,
    truncate_to_list_item,
)
from trainyard.runs.execution import Execution

# Read the earlier executions of a pipeline, newest first, only as far back as a plan needs.

LIMIT = 20
"""Largest number of executions that a plan reads. Each needs three API calls."""

# Numbers of executions that are read at a time. Most plans need only the newest execution.
BATCHES = (1, 4, LIMIT - 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """The record of a step that succeeded in an execution."""

    start_time: datetime
    end_time: datetime
    source: str | None
    """ARN of the execution whose result it reused; None if it ran."""

    job: str
    """Name of its job; empty for a step without a job."""

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, including the wait for machines."""
        return (self.end_time - self.start_time).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An execution of the pipeline."""

    arn: str
    start_time: datetime
    document: Mapping[str, Any]
    """Definition that was executed."""

    parameters: Mapping[str, Any]
    """Mapping of a parameter's name to its value, in its type."""

    steps: Mapping[str, StepRun]
    """Steps that succeeded, by name."""

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]


class History:
    """The earlier executions of one pipeline, which are read as needed.

    Args:
        sagemaker: boto3 client.
        pipeline: name of the pipeline; None if it does not exist, and so has no executions.
        before: use only executions that started earlier than this; None for all.
        s3: boto3 client for checking whether results still exist; None to skip this check.
    """

    def __init__(
        self, sagemaker: Any, pipeline: str | None, before: datetime | None = None, s3: Any = None
    ) -> None:
        self._sagemaker, self.s3 = sagemaker, s3
        self._before = before
        self._by_arn: dict[str, Run] = {}
        self._batches = self._iter_batches(pipeline) if pipeline else iter(())
        self.runs: list[Run] = []
        """Executions read so far, newest first."""

    def read_more(self) -> bool:
        """Read the next batch into ``runs``; return False if there are no more executions or
        :data:`LIMIT` is reached.
        """
        batch = next(self._batches, None)
        self.runs.extend(batch or ())
        return batch is not None

    def find_run(self, arn: str) -> Run | None:
        """Return the execution with that ARN; None if it no longer exists."""
        if arn not in self._by_arn:
            try:
                description = self._sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
            except ClientError as error:
                if read_error_code(error) == "ResourceNotFound":
                    return None
                raise
            self._load_run(arn, description.get("CreationTime", datetime.now(UTC)))
        return self._by_arn[arn]

    def _iter_batches(self, pipeline: str) -> Iterator[list[Run]]:
        """Iterate over the batches of executions, newest first."""
        earlier = {"CreatedBefore": self._before} if self._before else {}
        answer = self._sagemaker.list_pipeline_executions(
            PipelineName=pipeline,
            SortBy="CreationTime",
            SortOrder="Descending",
            MaxResults=LIMIT,
            **earlier,
        )
        executions = [
            (summary["PipelineExecutionArn"], summary["StartTime"])
            for summary in answer.get("PipelineExecutionSummaries", [])
            if "PipelineExecutionArn" in summary and "StartTime" in summary
        ]
        # The service rounds times, so it may list an execution that started at ``before`` itself.
        if self._before:
            executions = [
                (arn, start_time) for arn, start_time in executions if start_time < self._before
            ]
        start = 0
        for size in BATCHES:
            batch = executions[start : start + size]
            if not batch:
                return
            # Each execution needs three calls, which mostly wait for the service, so they are read
            # concurrently.
            with ThreadPoolExecutor(8) as threads:
                yield list(threads.map(lambda pair: self._load_run(*pair), batch))
            start += size

    def _load_run(self, arn: str, start_time: datetime) -> Run:
        """Return an execution with its definition, parameters and steps; read it only once."""
        if arn in self._by_arn:
            return self._by_arn[arn]
        execution = Execution(arn, make=lambda service, region: self._sagemaker)
        document = execution.read_definition() or {"Steps": []}
        parameters = resolve_parameters(document, execution.read_parameters())
        step_pages = self._sagemaker.get_paginator("list_pipeline_execution_steps")
        entries = (
            entry
            for page in step_pages.paginate(PipelineExecutionArn=arn)
            for entry in page.get("PipelineExecutionSteps", [])
        )
        self._by_arn[arn] = Run(
            arn=arn,
            start_time=start_time,
            document=document,
            parameters=parameters,
            steps={
                entry["StepName"]: _make_past_step(entry)
                for entry in entries
                if _is_complete(entry)
            },
        )
        return self._by_arn[arn]


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Return whether a step in the service's response has succeeded and has its times.

    All members of the response are optional.
    """
    complete = all(name in answer for name in ("StepName", "StartTime", "EndTime"))
    return complete and answer.get("StepStatus") == "Succeeded"


def _make_past_step(answer: Mapping[str, Any]) -> StepRun:
    """Create the record of a step from its entry in the service's response."""
    source_result = answer.get("CacheHitResult") or answer.get("SelectiveExecutionResult") or {}
    jobs = (
        body.get("Arn", "") for kind, body in answer.get("Metadata", {}).items() if "Job" in kind
    )
    return StepRun(
        start_time=answer["StartTime"],
        end_time=answer["EndTime"],
        source=source_result.get("SourcePipelineExecutionArn") or None,
        job=next(jobs, "").rpartition("/")[2],
    )


def find_executed_step(run: Run, name: str) -> Mapping[str, Any] | None:
    """Return the step ``name`` of the definition that was executed; None if there is none."""
    return index_steps(run.document).get(name)


STAND_IN_PREFIX = "\1"
"""Prefix of a text that replaces a value which a definition does not contain, such as a model's
URI. Equal texts mean equal values, whatever the values are."""


def find_argument(document: Mapping[str, Any], step: str, path: str) -> Any:
    """Return the value of a step's property from the step's arguments; None if they do not have it,
    because only the job's description does.
    """
    arguments = index_steps(document).get(step, {}).get("Arguments") or {}
    try:
        return look_up_path(arguments, path, step)
    except ExpressionError:
        return None


class PastScope(UnstartedScope):
    """Resolves references to the values of a past execution.

    Every reference had a value then. A value that the service does not report is replaced by a
    text with the prefix ``STAND_IN_PREFIX`` that is unique for it.
    """

    def __init__(self, run: Run, history: History) -> None:
        super().__init__(
            run.parameters, otherwise=lambda name: f"{STAND_IN_PREFIX}{name} of {run.arn}"
        )
        self._run = run
        self._history = history

    def variable(self, name: str) -> Any:
        """Return the value that an execution variable had in the past execution."""
        variables = {
            **parse_arn_variables(self._run.arn),
            "StartDateTime": self._run.start_time.isoformat(),
        }
        return variables[name] if name in variables else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        """Return a property that follows from the step's arguments; a stand-in for any other."""
        origin = self._find_origin(step)
        if isinstance(origin, Run):
            value = find_argument(origin.document, step, path)
            if value is not None:
                return evaluate_value(value, PastScope(origin, self._history))
        return self._make_stand_in(step, path)

    def property_file(self, step: str, name: str, path: str) -> Any:
        return self._make_stand_in(step, f"PropertyFiles.{name}: {path}")

    def s3_file(self, uri: str, path: str) -> Any:
        return f"{STAND_IN_PREFIX}{uri}: {path}"

    def _make_stand_in(self, step: str, path: str) -> str:
        """Return a text that is the same for the same result, in place of an unknown value."""
        origin = self._find_origin(step)
        source = origin.arn if isinstance(origin, Run) else origin
        return f"{STAND_IN_PREFIX}{step} of {source}: {path}"

    def _find_origin(self, step: str) -> Run | str:
        """Return the execution that created the step's result; its ARN if it no longer exists."""
        step_run: StepRun | None = self._run.steps.get(step)
        if step_run is None or step_run.source is None:
            return self._run
        return self._history.find_run(step_run.source) or step_run.source


class NextScope(UnstartedScope):
    """Resolves references to the values of the next execution.

    A value that is new in every execution is ``Unknown``. ``sources`` maps a step's name to the
    execution whose result it would reuse; the other steps run.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        parameters: Mapping[str, Any],
        pipeline: str,
        history: History,
        sources: Mapping[str, Run],
    ) -> None:
        super().__init__(parameters)
        self._document = document
        self._pipeline = pipeline
        self._history = history
        self._sources = sources

    def variable(self, name: str) -> Any:
        """Return the pipeline's name or ARN; other variables are ``Unknown``: new in every run."""
        if name == "PipelineName":
            return self._pipeline
        if name == "PipelineArn" and self._history.runs:
            return parse_arn_variables(self._history.runs[0].arn)[name]
        return Unknown(
            f"its {format_reference(f'Execution.{name}').strip('{}')} is new in every run"
        )

    def property(self, step: str, path: str) -> Any:
        """Return a property of the result that is reused, or one that is the same in every run."""
        if source := self._sources.get(step):
            return PastScope(source, self._history).property(step, path)
        value = evaluate_value(find_argument(self._document, step, path), self)
        # If an output has the same location in every run, its URI is the same in every run.
        is_known = value is not None and not any(iter_unknowns(value))
        return value if is_known else Unknown(f"{step} runs")

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return a stand-in if the step's result is reused; ``Unknown`` if the step runs."""
        if source := self._sources.get(step):
            return PastScope(source, self._history).property_file(step, name, path)
        return Unknown(f"{step} runs")

    def s3_file(self, uri: str, path: str) -> Any:
        """Return a stand-in that depends only on the URI and the path: the file is not read."""
        return f"{STAND_IN_PREFIX}{uri}: {path}"


class CacheKeys:
    """The cache keys of one step in the executions of a history."""

    def __init__(self, name: str, history: History) -> None:
        self._name, self._history = name, history

    def list_earlier(self) -> list[tuple[Run, StepRun, dict[str, Any]]]:
        """Return the step's results in the history, newest execution first.

        Each is (execution that created it, record of the step in that execution, the step's key).
        """
        results = []
        for run in self._history.runs:
            creation = self._find_creation(run)
            key = self.compute_key(run) if creation else None
            if creation and key is not None:
                results.append((*creation, key))
        return results

    def _find_creation(self, run: Run) -> tuple[Run, StepRun] | None:
        """Return the execution that created the step's result in ``run``, and its record of the
        step; None if the step did not succeed, or the execution no longer exists.
        """
        step_run = run.steps.get(self._name)
        if step_run is None or step_run.source is None:
            return (run, step_run) if step_run else None
        origin = self._history.find_run(step_run.source)
        origin_run = origin.steps.get(self._name) if origin else None
        return (origin, origin_run) if origin and origin_run else None

    def compute_key(self, run: Run) -> dict[str, Any] | None:
        """Return the step's key in ``run``; None if it had none, or it cannot be computed."""
        step = find_executed_step(run, self._name)
        if step is None:
            return None
        try:
            arguments = evaluate_value(step.get("Arguments") or {}, PastScope(run, self._history))
        except ExpressionError:
            # An expression has no value, and had none in that execution.
            return None
        return select_cache_key_arguments(dict(step), arguments)


def find_missing_output(history: History, run: Run, references_by_uri: Mapping[str, str]) -> str:
    """Return the URI of a step's output that no longer exists; empty if the result is complete.

    ``references_by_uri`` maps the URI of each output to the reference by which other steps use it.
    Return an empty string as well if the history has no S3 client.
    """
    if history.s3 is None:
        return ""
    empty = [uri for uri in references_by_uri if not _has_object(history.s3, uri)]
    text = json.dumps(run.document)
    read = [uri for uri in empty if references_by_uri[uri] in text]
    # An output that no step refers to may have been empty from the beginning, so it counts as
    # missing only if all outputs are empty.
    return next(iter(read), empty[0] if empty and len(empty) == len(references_by_uri) else "")


def find_output_uris(history: History, name: str, run: Run, step_run: StepRun) -> dict[str, str]:
    """Return the outputs of a step in an execution: a mapping of the URI to the reference by which
    other steps use it. The mapping is empty if the outputs are unknown.
    """
    if (step := find_executed_step(run, name)) is None:
        return {}
    try:
        arguments = evaluate_value(step.get("Arguments") or {}, PastScope(run, history))
    except ExpressionError:
        return {}
    return dict(_iter_output_uris(name, arguments, step_run.job))


def _iter_output_uris(
    name: str, arguments: Mapping[str, Any], job: str
) -> Iterator[tuple[str, str]]:
    """Iterate over (URI, beginning of the references of other steps to it) of a step's outputs.

    ``name`` is the step's name, ``job`` that of its job.
    """
    steps = f"Steps.{name}"
    for output in (arguments.get("ProcessingOutputConfig") or {}).get("Outputs") or ():
        reference = f"{steps}.ProcessingOutputConfig.Outputs['{output.get('OutputName')}']"
        yield (output.get("S3Output") or {}).get("S3Uri", ""), reference
    if (root := (arguments.get("OutputDataConfig") or {}).get("S3OutputPath")) and job:
        yield f"{str(root).rstrip('/')}/{job}/output/", f"{steps}.ModelArtifacts"
    if root := (arguments.get("TransformOutput") or {}).get("S3OutputPath"):
        yield root, f"{steps}.TransformOutput"


def _has_object(s3: Any, uri: Any) -> bool:
    """Return whether there is an object at ``uri``; True if that cannot be known."""
    if not isinstance(uri, str) or not uri.startswith("s3://"):
        return True
    try:
        return bool(list_objects(s3, uri, 1))
    except ClientError as error:
        return read_error_code(error) != "NoSuchBucket"


LINE = 44  # largest number of characters of the reasons for a step
WIDTH = 36  # largest number of characters of "old → new" in a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The prediction of what the next execution would do with a step."""

    step: str
    type: str
    answer: Literal["cached", "runs"]
    why: str
    when: str = ""
    """Condition under which the step is executed at all, such as ``if Gate``; empty if always."""

    source: Run | None = None
    """Execution whose result is reused; None if the step runs."""

    uris: tuple[str, ...] = ()
    """URIs of the result that is reused, as far as they are known."""


def predict_outcomes(
    document: Mapping[str, Any], pipeline: str, history: History, now: datetime
) -> list[Outcome]:
    """Predict the outcome of every step in the next execution.

    Return them in an order in which the steps can run. More of ``history`` is read while a step
    that may be cached has no hit.

    Args:
        document: definition of the next execution.
        pipeline: name of the pipeline.
        history: its earlier executions.
        now: time of the next execution.
    """
    while True:
        sources: dict[str, Run] = {}
        following = NextScope(
            document, resolve_parameters(document, {}), pipeline, history, sources
        )
        outcomes = []
        for step in order_steps(document):
            condition, holds = step.branch or ("", True)
            when = f"{'if' if holds else 'unless'} {condition}" if condition else ""
            outcome = _StepPrediction(
                step.name, step.document, following, history, now
            ).predict_outcome(when)
            if outcome.source:
                sources[step.name] = outcome.source
            outcomes.append(outcome)
        cached_steps = {outcome.step for outcome in outcomes if outcome.answer == "cached"}
        # A step without a key is never taken from the cache, so reading older executions would not
        # change its outcome.
        hopeful = {
            name
            for name, step in index_steps(document).items()
            if select_cache_key_arguments(step, {}) is not None
        }
        if hopeful <= cached_steps or not history.read_more():
            return outcomes


def order_steps(document: Mapping[str, Any]) -> list[Step]:
    """Return the steps in the definition's order, but each after the steps that it waits for."""
    everything = {step.name: step for step in iter_steps(document["Steps"])}
    sequence: dict[str, Step] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        # ``above`` are the steps that wait for this one: it ends the recursion if steps of an
        # invalid definition wait for each other.
        if name in sequence or name in above or name not in everything:
            return
        for other in everything[name].waits_for:
            visit(other, (*above, name))
        sequence[name] = everything[name]

    for name in everything:
        visit(name, ())
    return list(sequence.values())


class _StepPrediction:
    """Predicts whether one step would be taken from the cache."""

    def __init__(
        self,
        name: str,
        step: Mapping[str, Any],
        following: NextScope,
        history: History,
        now: datetime,
    ) -> None:
        self._name = name
        self._step = step
        self._following = following
        self._history = history
        self._now = now

    def predict_outcome(self, when: str) -> Outcome:
        """Return the outcome of the step; ``when`` is the condition under which it is executed."""
        runs: dict[str, Any] = {
            "step": self._name,
            "type": self._step["Type"],
            "answer": "runs",
            "when": when,
        }
        if not get_step_type(self._step["Type"]).cache_key:
            return Outcome(**runs, why="never cached")
        if not (self._step.get("CacheConfig") or {}).get("Enabled"):
            return Outcome(**runs, why="the cache is off")
        try:
            arguments = evaluate_value(self._step["Arguments"], self._following)
        except ExpressionError as error:
            return Outcome(**runs, why=f"its key cannot be known: {error}")
        new_key = select_cache_key_arguments(dict(self._step), arguments) or {}
        earlier = CacheKeys(self._name, self._history).list_earlier()
        new = any(iter_unknowns(new_key))
        matching_runs = (
            []
            if new
            else [
                (r, step_run)
                for r, step_run, key in earlier
                if _dump_key(key) == _dump_key(new_key)
            ]
        )
        fresh = [
            (run, step_run)
            for run, step_run in matching_runs
            if self._now - step_run.end_time <= self._compute_lifetime()
        ]
        lost = ""
        for run, step_run in sorted(fresh, key=lambda pair: pair[1].end_time, reverse=True):
            references_by_uri = find_output_uris(self._history, self._name, run, step_run)
            if not (missing := find_missing_output(self._history, run, references_by_uri)):
                runs["answer"] = "cached"
                reason = f"as in run {run.id}"
                return Outcome(**runs, why=reason, source=run, uris=tuple(references_by_uri))
            lost = lost or f"its result is gone: nothing is left in {missing}"
        if lost:
            return Outcome(**runs, why=lost)
        return Outcome(**runs, why=self._explain_miss(new_key, earlier, matching_runs))

    def _compute_lifetime(self) -> timedelta:
        """Return the age up to which the cache reuses a result."""
        text = self._step["CacheConfig"].get("ExpireAfter")
        return timedelta.max if text is None else timedelta(seconds=parse_duration(text))

    def _explain_miss(self, new_key: dict, earlier: list, matching_runs: list) -> str:
        """Return why no earlier result is reused.

        Args:
            new_key: key of the step in the next execution.
            earlier: earlier results (see ``CacheKeys.list_earlier``).
            matching_runs: those that have the same key, and so must be too old.
        """
        if matching_runs:
            _, step_run = max(matching_runs, key=lambda pair: pair[1].end_time)
            age = self._step["CacheConfig"]["ExpireAfter"]
            return f"expired: its result is from {step_run.end_time:%Y-%m-%d}, kept for {age}"
        if not earlier:
            run_count = len(self._history.runs)
            return (
                "no earlier run" if run_count < LIMIT else f"none of the last {LIMIT} runs had it"
            )
        now = flatten_fields(new_key)
        changes = list(iter_field_changes(flatten_fields(earlier[0][2]), now))
        reasons = [_list_reasons(now, change.path) for change in changes]
        upstream = [reason for of_one in reasons for reason in of_one]
        own_reasons = [
            _format_change(c) for c, of_one in zip(changes, reasons, strict=True) if not of_one
        ]
        # Reasons with old and new values come first, because not all may fit into the line.
        own_reasons.sort(key=lambda words: "→" not in words)
        words = list(dict.fromkeys([*own_reasons, *upstream])) or [
            "the layout of its arguments changed"
        ]
        # Show as many reasons as fit, at least one, and the number of the others.
        fits = sum(len(", ".join(words[:count])) <= LINE for count in range(1, len(words) + 1))
        limit = max(1, fits)
        more = f" and {len(words) - limit} more" if len(words) > limit else ""
        return ", ".join(words[:limit]) + more


def _list_reasons(fields: Fields, path: str) -> list[str]:
    """Return why the field at ``path``, or a field inside the list item at ``path``, is not known
    before the run; empty if all are known.
    """
    inside = (
        field.raw
        for field_path, field in fields.items()
        if path in (field_path, truncate_to_list_item(field_path))
    )
    return [reason for raw in inside if isinstance(raw, Unknown) for reason in raw.reasons]


def is_key_changed(old: Mapping[str, Any], new: Mapping[str, Any], step: str) -> bool:
    """Return whether a change between two definitions is in the step's cache key.

    This is so if the key's arguments, or the defaults of parameters in it, differ.
    """
    return _read_declared_key(old, step) != _read_declared_key(new, step)


def _read_declared_key(document: Mapping[str, Any], name: str) -> tuple[Any, dict[str, Any]]:
    """Return a step's key with unresolved expressions, and the defaults of the parameters in it."""
    step = dict(index_steps(document).get(name, {}))
    key, defaults = (
        select_cache_key_arguments(step, step.get("Arguments") or {}),
        resolve_parameters(document, {}),
    )
    names = {r.name for r in iter_known_references(key or {}) if r.kind == "Parameters"}
    return key, {parameter: defaults.get(parameter) for parameter in names}


def _dump_key(key: Any) -> str:
    return json.dumps(key, sort_keys=True)


def _format_change(change: Change) -> str:
    """Return a difference between two keys as a reason in words."""
    name = format_path(change.path)
    if change.sign != "~":
        return f"{name} is {'new' if change.sign == '+' else 'gone'}"
    values = f"{change.old} → {change.new}"
    if CODE.fullmatch(change.new or ""):
        return f"{parse_code_name(change.path)} changed"
    if STAND_IN_PREFIX in values or len(values) > WIDTH:
        return f"{name} changed"
    return f"{name.rpartition('.')[2]} {values}"


def parse_code_name(path: str) -> str:
    """Return the name in brackets in a path: ``code`` for
    ``ProcessingInputs[code].S3Input.S3Uri``; the path's label if it has none.
    """
    return path.partition("[")[2].partition("]")[0] or format_path(path)


# List the objects under a prefix in S3.

MOST = 10_000
"""Largest number of objects that are listed for one prefix."""


def list_objects(s3: Any, uri: str, limit: int = MOST) -> list[dict[str, Any]]:
    """Return up to ``limit`` objects in the folder ``uri``; if there are none, those whose keys
    begin with the key in ``uri``.

    Raises:
        ClientError: S3 refused.
    """
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    return _list_prefix(s3, bucket, folder, limit) or _list_prefix(s3, bucket, prefix, limit)


def _list_prefix(s3: Any, bucket: str, prefix: str, limit: int) -> list[dict[str, Any]]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return list(islice((item for page in pages for item in page.get("Contents", ())), limit))
