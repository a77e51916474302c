"""The operations on executions of pipelines: start, stop, retry, describe and list them."""

import logging
import secrets
import string
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainyard.common import atomic_file
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.request_scope import ApiError, make_page, make_validation_error, sort_items
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pipelines import checked_definition, step_cache
from trainyard.emulator.sagemaker.pipelines.checked_definition import (
    Definition,
    Step,
    build_parameter_values,
)
from trainyard.emulator.sagemaker.pipelines.pipeline_versions import Pipelines, Version
from trainyard.emulator.sagemaker.pipelines.running_execution import Execution, ExecutionScope, Work
from trainyard.emulator.sagemaker.pipelines.step_order import Observe, ignore_change
from trainyard.language.definition_document import END_STATUSES
from trainyard.language.evaluation import evaluate_value
from trainyard.language.expressions import ExpressionError, format_parameter_value
from trainyard.language.step_types import get_step_type

log = logging.getLogger(__name__)

LOST = "InternalServerError: the emulator ended while this execution was running"
_LETTERS = string.ascii_lowercase + string.digits
_SUMMARY = (
    "PipelineExecutionArn",
    "PipelineExecutionDisplayName",
    "PipelineExecutionDescription",
    "PipelineExecutionStatus",
    "PipelineExecutionFailureReason",
)
_START_MEMBERS = ("PipelineExecutionDisplayName", "PipelineExecutionDescription")
_STEP = (
    "StepName",
    "StepDisplayName",
    "StepDescription",
    "StartTime",
    "EndTime",
    "StepStatus",
    "CacheHitResult",
    "SelectiveExecutionResult",
    "FailureReason",
    "Metadata",
    "AttemptCount",
    "IterationContext",
)


class Executions:
    """The executions of a state directory. Its methods are thread-safe."""

    def __init__(
        self,
        root: Path,
        pipelines: Pipelines,
        work: Work,
        objects: ObjectStore,
        observe: Observe = ignore_change,
    ) -> None:
        """Load the executions. ``observe`` is called at every change of the status of an execution
        or step.
        """
        self._root = root
        self._pipelines = pipelines
        self._work = work
        self._objects, self._observe = objects, observe
        self._all: dict[str, Execution] = {}
        self._lock = threading.RLock()
        self._is_closed = False
        root.mkdir(parents=True, exist_ok=True)
        for path in sorted(root.glob("*/execution.json")):
            self._load(path)

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "StartPipelineExecution": self.start,
            "StopPipelineExecution": self.stop,
            "RetryPipelineExecution": self.retry,
            "UpdatePipelineExecution": self.update,
            "DescribePipelineExecution": self.describe,
            "ListPipelineExecutions": self.list_executions,
            "ListPipelineExecutionSteps": self.list_steps,
            "ListPipelineParametersForExecution": self.page_parameters,
            "DescribePipelineDefinitionForExecution": self.read_definition,
        }

    def start(self, request: dict) -> dict:
        """Start an execution. A repeated ClientRequestToken returns the same execution."""
        checked_definition.refuse_members(request)
        with self._lock:
            if self._is_closed:
                raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
            token = request.get("ClientRequestToken")
            for other in self._all.values():
                if token and other.record["token"] == token:
                    return {"PipelineExecutionArn": other.arn}  # the same call, repeated
            version = self._pipelines.find_version(
                request["PipelineName"], request.get("PipelineVersionId")
            )
            execution = self._create(version, request)
        name = version.pipeline["PipelineName"]
        try:
            self._pipelines.record_start(name, version.number, execution.arn)
            execution.start()
        except OSError:  # the disk is full: do not start an execution without a record
            self._all.pop(execution.arn)
            raise
        return {"PipelineExecutionArn": execution.arn}

    def stop(self, request: dict) -> dict:
        """Stop a running execution. Raises ``ValidationException`` if it has ended."""
        execution = self._find_execution(request)
        status = execution.record["answer"]["PipelineExecutionStatus"]
        if status in END_STATUSES:
            raise make_validation_error(
                f"Pipeline execution with ARN {execution.arn} is in status {status}."
            )
        execution.stop()
        return {"PipelineExecutionArn": execution.arn}

    def retry(self, request: dict) -> dict:
        """Run again the steps that failed, were stopped or did not run. Results of the others are
        kept.
        """
        with self._lock:
            old, token = self._find_execution(request), request["ClientRequestToken"]
            if token in old.record.get("retries", ()):
                return {"PipelineExecutionArn": old.arn}  # the same call, repeated
            status = old.record["answer"]["PipelineExecutionStatus"]
            if status not in ("Failed", "Stopped"):
                raise make_validation_error(
                    f"only a failed or stopped execution can be retried, not {status}"
                )
            steps = old.record["steps"]
            check_retry(steps, old.arn)
            successes = {
                n: record for n, record in steps.items() if record["StepStatus"] == "Succeeded"
            }
            answer = {k: v for k, v in old.record["answer"].items() if k != "FailureReason"}
            answer["PipelineExecutionStatus"] = "Executing"
            if "ParallelismConfiguration" in request:
                answer["ParallelismConfiguration"] = request["ParallelismConfiguration"]
            tokens = [*old.record.get("retries", ()), token]
            new = {"answer": answer, "steps": successes, "retries": tokens}
            execution = self._make_execution(old.directory, old.record | new)
            self._all[execution.arn] = execution
        # Without the lock: threads of the earlier run that are still ending may need it to look
        # into the cache.
        old.wait()
        execution.start()
        return {"PipelineExecutionArn": execution.arn}

    def update(self, request: dict) -> dict:
        execution = self._find_execution(request)
        with execution.lock:
            answer = execution.record["answer"]
            members = (*_START_MEMBERS, "ParallelismConfiguration")
            answer |= {key: request[key] for key in members if key in request}
            execution.save()
        return {"PipelineExecutionArn": execution.arn}

    def describe(self, request: dict) -> dict:
        execution = self._find_execution(request)
        with execution.lock:
            return dict(execution.record["answer"])

    def list_executions(self, request: dict) -> dict:
        arn = self._pipelines.describe({"PipelineName": request["PipelineName"]})["PipelineArn"]
        answers = [e.record["answer"] for e in self._find_executions(arn)]
        after, before = request.get("CreatedAfter", 0), request.get("CreatedBefore", float("inf"))
        summaries = [answer for answer in answers if after <= answer["CreationTime"] <= before]
        keys = {"CreationTime": "CreationTime", "PipelineExecutionArn": "PipelineExecutionArn"}
        summaries = sort_items(summaries, request, keys, "CreationTime", "Descending")
        return make_page("PipelineExecutionSummaries", summaries, request, 10, _summarize_execution)

    def list_steps(self, request: dict) -> dict:
        """Handle ListPipelineExecutionSteps, the newest step first by default."""
        execution = self._find_execution(request)
        with execution.lock:
            records = [dict(record) for record in execution.steps.values()]
        entries = sort_items(
            records, request, {"CreatedTime": "StartTime"}, "CreatedTime", "Descending"
        )
        return make_page("PipelineExecutionSteps", entries, request, 100, _summarize_step)

    def page_parameters(self, request: dict) -> dict:
        arn = self._find_execution(request).arn
        return make_page("PipelineParameters", self.list_parameters(arn), request, 100)

    def list_parameters(self, arn: str) -> list[dict[str, str]]:
        """Return all parameters of the execution with that ARN, as the API returns them."""
        parameters = self._all[arn].record["parameters"]
        return [
            {"Name": name, "Value": format_parameter_value(value)}
            for name, value in parameters.items()
        ]

    def list_descriptions(self) -> list[dict]:
        """Return the description of each execution whose pipeline still exists."""
        arns = self._pipelines.list_arns()
        with self._lock:
            answers = [execution.record["answer"] for execution in self._all.values()]
        return [dict(answer) for answer in answers if answer["PipelineArn"] in arns]

    def read_definition(self, request: dict) -> dict:
        execution = self._find_execution(request)
        return {
            "PipelineDefinition": (execution.directory / "definition.json").read_bytes().decode(),
            "CreationTime": execution.record["answer"]["CreationTime"],
        }

    def wait_for_callback_step(self, arn: str, token: str) -> None:
        """Return when the step that waited with that callback token has ended."""
        self._all[arn].wait_for_callback(token)

    def list_running(self, pipeline: str) -> list[str]:
        """Return the ARNs of the running executions of the pipeline with the ARN ``pipeline``."""
        return [
            execution.arn
            for execution in self._find_executions(pipeline)
            if execution.record["answer"]["PipelineExecutionStatus"] not in END_STATUSES
        ]

    def close(self) -> None:
        """Stop every execution. The jobs must also be stopped before ``join`` is called."""
        with self._lock:
            self._is_closed = True
        running = [
            e
            for e in self._all.values()
            if e.record["answer"]["PipelineExecutionStatus"] not in END_STATUSES
        ]
        if running:
            log.warning(
                "stopping executions that are still running: %s", ", ".join(e.arn for e in running)
            )
        for execution in running:
            execution.stop()

    def join(self) -> None:
        """Return when no thread of any execution is running any more. The observers may be closed
        then.
        """
        with self._lock:
            executions = list(self._all.values())
        for execution in executions:
            execution.wait()

    # internals

    def _find_executions(self, pipeline: str) -> list[Execution]:
        with self._lock:
            executions = list(self._all.values())
        return [e for e in executions if e.record["answer"]["PipelineArn"] == pipeline]

    def _find_execution(self, request: dict) -> Execution:
        arn = request.get("PipelineExecutionArn")  # not required by ListPipelineExecutionSteps
        if arn not in self._all:
            raise ApiError("ResourceNotFound", f"Pipeline execution '{arn}' does not exist.")
        return self._all[arn]

    def _create(self, version: Version, request: dict) -> Execution:
        """Create the record and the folder of an execution, and add it to the table. It is not
        started.
        """
        pipeline, now = version.pipeline, time.time()
        number = "".join(secrets.choice(_LETTERS) for _ in range(12))
        parallel = request.get("ParallelismConfiguration") or pipeline.get(
            "ParallelismConfiguration"
        )
        answer = {
            "PipelineArn": pipeline["PipelineArn"],
            "PipelineExecutionArn": f"{pipeline['PipelineArn']}/execution/{number}",
            "PipelineExecutionDisplayName": f"execution-{int(now * 1000)}",
            "PipelineExecutionStatus": "Executing",
            "CreationTime": now,
            "LastModifiedTime": now,
            "CreatedBy": {},
            "LastModifiedBy": {},
            "PipelineVersionId": version.number,
            "RoleArn": request.get("RoleArn") or pipeline.get("RoleArn", ""),
            **({"ParallelismConfiguration": parallel} if parallel else {}),
            **{key: request[key] for key in _START_MEMBERS if key in request},
        }
        self._work.authority.check_role_trust(
            str(answer["RoleArn"]), str(answer["PipelineExecutionArn"])
        )
        record = {
            "answer": answer,
            "pipeline": pipeline["PipelineName"],
            "token": request.get("ClientRequestToken"),
            "parameters": build_parameter_values(
                version.definition.parameters, request.get("PipelineParameters", [])
            ),
            "steps": {},
        }
        if config := request.get("SelectiveExecutionConfig"):
            answer["SelectiveExecutionConfig"] = config
            names = record["selected"] = select_steps(version.definition, config)
            source = self._find_source(config, pipeline["PipelineArn"])
            record["steps"] = collect_reused_records(
                version.definition, names, source, self._objects
            )
        if experiment := version.definition.experiment:
            experiment_names = self._resolve_experiment(experiment, record, version)
            answer["PipelineExperimentConfig"] = experiment_names
            self._work.experiments.ensure_trial(experiment_names)
        directory = self._root / number
        directory.mkdir()
        atomic_file.write_file(directory / "definition.json", version.text)
        execution = self._make_execution(directory, record)
        self._all[execution.arn] = execution
        return execution

    def _resolve_experiment(
        self, experiment: dict, record: dict, version: Version
    ) -> dict[str, str]:
        """Return the names of the experiment and the trial. Raises ``ValidationException`` if an
        expression in them has no value.
        """
        scope = ExecutionScope(record, version.definition, self._work.describe, self._objects, {})
        try:
            return {name: str(evaluate_value(value, scope)) for name, value in experiment.items()}
        except ExpressionError as error:
            raise make_validation_error(f"PipelineExperimentConfig: {error}") from None

    def _find_source(self, config: dict, pipeline: str) -> dict | None:
        """Return the record of the execution whose results a selective execution reuses. Return
        None if the request names none.
        """
        arn = config.get("SourcePipelineExecutionArn")
        if arn is None:
            return None
        if arn not in self._all or not arn.startswith(f"{pipeline}/execution/"):
            message = f"Invalid SourcePipelineExecutionArn: {arn}."
            raise make_validation_error(f"{message} It is not an execution of {pipeline}")
        return self._all[arn].record

    def _make_execution(self, directory: Path, record: dict) -> Execution:
        return Execution(
            directory, record, self._work, self._objects, self._list_runs, self._observe
        )

    def _load(self, path: Path) -> None:
        """Load an execution. Mark it as failed if it was running when an earlier emulator ended."""
        record = read_json(path)
        if record["answer"]["PipelineExecutionStatus"] not in END_STATUSES:
            record["answer"] |= {"PipelineExecutionStatus": "Failed", "FailureReason": LOST}
            record["answer"]["LastModifiedTime"] = time.time()
            for step in record["steps"].values():
                if "EndTime" not in step:
                    step |= {"StepStatus": "Failed", "FailureReason": LOST, "EndTime": time.time()}
            write_json(path, record)
        execution = self._make_execution(path.parent, record)
        self._all[execution.arn] = execution

    def _list_runs(self, execution: Execution) -> list[tuple[dict[str, Any], str]]:
        """Return pairs of a step record and the ARN of its execution, for all executions of the
        same pipeline.
        """
        return [
            (record, other.arn)
            for other in self._find_executions(execution.record["answer"]["PipelineArn"])
            # A copy of the list, because other executions add records at the same time.
            for record in list(other.steps.values())
        ]


def _summarize_execution(answer: dict) -> dict:
    members = answer | {
        "StartTime": answer["CreationTime"],
        "PipelineExecutionFailureReason": answer.get("FailureReason"),
    }
    keys = (*_SUMMARY, "StartTime")
    return {key: members[key] for key in keys if members.get(key) is not None}


def _summarize_step(record: dict) -> dict:
    return {key: record[key] for key in _STEP if key in record}


# Selective execution: select the steps of a pipeline that run, and the results of an earlier
# execution that they reuse. The rules are SelectiveExecutionConfig's (API reference; developer
# guide, "Selective execution"): all steps on a path between two selected steps must be selected,
# and a selected step that depends on an unselected step takes that step's results from the source
# execution.

MOST = 50


def select_steps(definition: Definition, config: Mapping[str, Any]) -> list[str]:
    """Return the names of the selected steps. Raises ``ValidationException`` if the selection
    breaks a rule.
    """
    names = [entry["StepName"] for entry in config["SelectedSteps"]]
    unknown = [name for name in names if name not in definition.steps]
    if unknown:
        raise make_validation_error(
            f"Invalid SelectedSteps: the pipeline has no steps [{', '.join(unknown)}]"
        )
    if not 1 <= len(names) <= MOST:
        raise make_validation_error(
            f"Invalid SelectedSteps: {len(names)} steps, expected 1 to {MOST}"
        )
    below = _find_downstream_steps(definition, names)
    between = [n for n in _find_upstream_steps(definition, names) if n in below and n not in names]
    if between:
        message = f"Invalid SelectedSteps: the steps [{', '.join(between)}] are on a path between"
        raise make_validation_error(
            f"{message} selected steps [{', '.join(names)}]; select them, too"
        )
    return names


def collect_reused_records(
    definition: Definition, names: list[str], source: Mapping[str, Any] | None, objects: ObjectStore
) -> dict[str, dict]:
    """Return the records of the steps whose results the selected steps take from ``source``, by
    step name.

    ``source`` is the record of an execution of the same pipeline. Raises ``ValidationException`` if
    it is needed but None, or if it does not have a result that is needed.
    """
    dependencies = [
        n for name in names for n in _list_awaited_steps(definition.steps[name]) if n not in names
    ]
    dependencies = list(dict.fromkeys(dependencies))
    if dependencies and source is None:
        raise make_validation_error(
            f"Invalid SourcePipelineExecutionArn: null. The selected steps [{', '.join(names)}] "
            f"have dependencies on [{', '.join(dependencies)}]"
        )
    if source is None:
        return {}
    arn = source["answer"]["PipelineExecutionArn"]
    status = source["answer"]["PipelineExecutionStatus"]
    if status not in END_STATUSES:
        raise make_validation_error(
            f"Invalid SourcePipelineExecutionArn: {arn} is in status {status}"
        )
    for name in dependencies:
        _check_step(definition.steps[name], source["steps"].get(name), arn)
    for name in names:
        _check_branch(definition.steps[name], names, source)
    above = _find_upstream_steps(definition, names)
    records = {
        name: _copy_record(record, arn)
        for name, record in source["steps"].items()
        if name in above and name not in names and record["StepStatus"] == "Succeeded"
    }
    records |= {
        name: _copy_record(record, arn)
        for name, record in source["steps"].items()
        if record.get("IterationContext", {}).get("ParentStepName") in records
    }
    _check_outputs({name: records[name] for name in dependencies}, arn, objects)
    return records


def _list_awaited_steps(step: Step) -> list[str]:
    """Return the names of the steps for which the step waits, including its condition step."""
    return [*step.depends_on, *([step.branch[0]] if step.branch else [])]


def _find_upstream_steps(definition: Definition, names: Iterable[str]) -> set[str]:
    """Return the names of all steps on which ``names`` depend, directly or indirectly."""
    ancestors: set[str] = set()
    todo = list(names)
    while todo:
        new = set(_list_awaited_steps(definition.steps[todo.pop()])) - ancestors
        ancestors |= new
        todo += new
    return ancestors


def _find_downstream_steps(definition: Definition, names: Iterable[str]) -> set[str]:
    """Return the names of all steps that depend on ``names``, directly or indirectly."""
    descendants: set[str] = set()
    while True:
        last = {*names, *descendants}
        new = {
            n for n, step in definition.steps.items() if last & set(_list_awaited_steps(step))
        } - descendants
        if not new:
            return descendants
        descendants |= new


def _check_step(step: Step, record: dict | None, arn: str) -> None:
    """Raise ``ValidationException`` unless ``record`` is of a successful step of the same type."""
    status = record["StepStatus"] if record else "not run"
    if record is None or status != "Succeeded":
        raise make_validation_error(
            f"Invalid SourcePipelineExecutionArn: {arn}. The selected steps depend on step "
            f"{step.name!r}, which has not succeeded there ({status})"
        )
    kind = get_step_type(step.type).metadata_key
    if kind not in record["Metadata"]:
        message = f"Invalid SourcePipelineExecutionArn: {arn}. Step {step.name!r} is of type"
        raise make_validation_error(f"{message} {step.type}, but had another type there")


def _check_branch(step: Step, names: list[str], source: Mapping[str, Any]) -> None:
    """Raise ``ValidationException`` if the step is in a branch that cannot run, because its
    condition had the other outcome in ``source``.
    """
    if not step.branch or step.branch[0] in names:
        return
    condition, outcome = step.branch
    earlier = source["steps"][condition]["Metadata"]["Condition"]["Outcome"]
    if earlier != str(outcome):
        raise make_validation_error(
            f"Invalid SelectedSteps: step {step.name!r} runs when {condition!r} is {outcome}, and "
            f"it was {earlier} in the source execution; select {condition!r}, too"
        )


def _check_outputs(records: dict[str, dict], arn: str, objects: ObjectStore) -> None:
    """Raise ``ValidationException`` if an output of one of the steps no longer exists."""
    for name, record in records.items():
        gone = [uri for uri in record.get("outputs", ()) if not step_cache.has_object(objects, uri)]
        if gone:
            message = f"Invalid SourcePipelineExecutionArn: {arn}. The outputs of step {name!r}"
            raise make_validation_error(
                f"{message} no longer include {gone[0]}; select that step, too"
            )


def _copy_record(record: dict, arn: str) -> dict:
    """Return a copy of the record of a step that is reused."""
    # The signature is left out, so that the step cache does not count the reuse as a run of the
    # step.
    keys = (
        "StepName",
        "StepDisplayName",
        "StepDescription",
        "Metadata",
        "outputs",
        "IterationContext",
    )
    now = time.time()
    return {key: record[key] for key in keys if key in record} | {
        "StartTime": now,
        "EndTime": now,
        "StepStatus": "Succeeded",
        "SelectiveExecutionResult": {"SourcePipelineExecutionArn": arn},
    }


def check_retry(steps: Mapping[str, dict], arn: str) -> None:
    """Raise ``ValidationException`` if a Fail step ended the execution: it cannot be retried."""
    failures = [n for n, record in steps.items() if "Fail" in record["Metadata"]]
    if failures:
        raise ApiError(
            "ValidationException",
            f"Pipeline execution {arn} cannot be retried: it was ended by Fail step "
            f"{failures[0]!r}",
        )
