"""A running execution of a pipeline: run the steps of its definition in order.

    <state>/executions/<id>/execution.json   the record: answers, parameters, step records
    <state>/executions/<id>/definition.json  the definition that runs, byte for byte

A step starts, in its own thread, when all steps that it waits for have ended. When a step fails,
running steps continue to their end and no others start, except those whose Trigger requests the
failure. Then the execution is Failed.
"""

import functools
import logging
import secrets
import string
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard.common.errors import EmulatorError
from trainyard.emulator.iam.authority import Authority, restrict_objects
from trainyard.emulator.iam.s3_calls import iter_step_calls
from trainyard.emulator.json_documents import RepeatedWrite, write_json
from trainyard.emulator.request_scope import ApiError, Thread
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.job import DEFECT, KINDS
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, join_key, split_uri
from trainyard.emulator.sagemaker.pipelines import step_cache
from trainyard.emulator.sagemaker.pipelines.checked_definition import (
    Definition,
    Step,
    parse_definition,
)
from trainyard.emulator.sagemaker.pipelines.step_order import (
    Observe,
    Order,
    ignore_change,
    unroll_loop,
)
from trainyard.emulator.sagemaker.pipelines.steps import RUNNERS, Runner, Services
from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    StepFailed,
    StepStopped,
    StepTimedOut,
    make_failure,
    parse_outputs,
)
from trainyard.emulator.sagemaker.search_api import Experiments
from trainyard.language.definition_document import END_STATUSES, locate_property_file
from trainyard.language.evaluation import evaluate_value, extract_json_value, parse_arn_variables
from trainyard.language.expressions import ExpressionError, Value, look_up_path, split_path
from trainyard.language.retries import Retries
from trainyard.language.step_types import STEP_TYPES, get_step_type

# Values of an execution's expressions.


class ExecutionScope:
    """The :class:`trainyard.language.evaluation.Scope` of an execution, in which every value is
    known.

    Args:
        record: the execution's record, with the results of its steps so far.
        definition: the definition that runs.
        describe: returns the Describe response for a step's Metadata.
        objects: the objects in S3, for property files.
        names: TrainingJobName or ProcessingJobName, which exist only in steps of that type.
    """

    def __init__(
        self,
        record: dict,
        definition: Definition,
        describe: Callable[[dict], dict],
        objects: ObjectStore,
        names: dict[str, str],
    ) -> None:
        self._record = record
        self._definition = definition
        self._describe = describe
        self._objects = objects
        self._names = names

    def parameter(self, name: str) -> Value:
        return self._record["parameters"][name]

    def variable(self, name: str) -> str:
        """Return the value of the execution variable ``name``, such as StartDateTime."""
        answer = self._record["answer"]
        values = {
            **parse_arn_variables(answer["PipelineExecutionArn"]),
            "StartDateTime": _format_iso(answer["CreationTime"]),
            "CurrentDateTime": _format_iso(datetime.now(UTC).timestamp()),
            "PipelineName": self._record["pipeline"],
        } | {name: value for name, value in self._names.items() if value}
        if name not in values:
            raise ExpressionError(f"Execution.{name} exists only in a step of that job's type")
        return values[name]

    def property(self, step: str, path: str) -> Any:
        """Return a property of a step; for a loop, that of a step of the named iteration."""
        if self._find_document(step).get("Type") == "ForEach":
            target = self._find_child(step, split_path(path))
            if target:
                return self.property(*target)
        if step not in self._record["steps"]:
            raise ExpressionError(f"Get 'Steps.{step}.{path}': there is no step {step!r}")
        properties = self._describe(self._record["steps"][step]["Metadata"])
        document = self._find_document(step)
        if get_step_type(document.get("Type")).declares_outputs:
            properties = parse_outputs(document.get("OutputParameters") or [], properties)
        return look_up_path(properties, path, f"Get 'Steps.{step}.{path}'")

    def _find_child(self, loop: str, tokens: list[str | int]) -> tuple[str, str] | None:
        """Return the loop's step and the property to which IterationOutputs[i].<body>.x or
        Selected.x refers. Return None if the tokens are neither.
        """
        loop_metadata = self._record["steps"].get(loop, {}).get("Metadata", {}).get("ForEach", {})
        if tokens[0] == "IterationOutputs" and len(tokens) > 3:
            index, body, *inner_tokens = tokens[1:]
        elif tokens[0] == "Selected" and len(tokens) > 1 and "Selector" in loop_metadata:
            selection = loop_metadata["Selector"]
            body, index, inner_tokens = selection["StepName"], selection["Index"], tokens[1:]
        else:
            return None
        parts = (f"[{t}]" if isinstance(t, int) else f"['{t}']" for t in inner_tokens)
        return f"{body}-{index}", "".join(parts).removeprefix(".")

    def _find_document(self, step: str) -> dict[str, Any]:
        """Return the definition of a step, or of the body step from which a loop made it."""
        steps = self._definition.steps
        source = steps.get(step) or steps.get(step.rpartition("-")[0])
        if source is None:
            raise ExpressionError(f"there is no step {step!r}")
        return source.document

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return the value at ``path`` in a property file of a step."""
        location = f"property file {name!r} of step {step!r}"
        folder, file = locate_property_file(self._find_document(step), name)
        try:
            data = self._read(join_key(self.property(step, folder), file))
        except ExpressionError as error:
            raise ExpressionError(f"{location}: {error}") from None
        return extract_json_value(data, path, location)

    def s3_file(self, uri: str, path: str) -> Any:
        """Return the value at ``path`` in the JSON object at ``uri``."""
        return extract_json_value(self._read(uri), path, uri)

    def _read(self, uri: str) -> bytes:
        """Return the content of an object. Raises ExpressionError if it cannot be read."""
        try:
            return self._objects.read_bytes(*split_uri(uri))
        except (ApiError, ClientFault) as error:
            message = error.message if isinstance(error, ApiError) else str(error)
            raise ExpressionError(f"cannot read {uri}: {message}") from None


def _format_iso(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# The runners of all step types, found by a step's type or by the key of its Metadata.


class Work:
    """Describe and stop what steps created, with the runners of all types. It is thread-safe.

    ``metadata`` is a step's Metadata, which is empty until the step has created something.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runners = {name: make(services, name) for name, make in RUNNERS.items()}
        self._by_key = {STEP_TYPES[name].metadata_key: r for name, r in self._runners.items()}

    @property
    def experiments(self) -> Experiments:
        return self._services.experiments

    @property
    def authority(self) -> Authority:
        return self._services.aws.authority

    def get_runner(self, step_type: str) -> Runner:
        return self._runners[step_type]

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the Describe response for the resource that a step's Metadata names."""
        [(key, metadata_value)] = metadata.items()
        return self._by_key[key].describe(metadata_value)

    def list_outputs(self, metadata: dict[str, Any]) -> list[str]:
        """Return the URIs to which the step wrote."""
        return [
            uri for key, body in metadata.items() for uri in self._by_key[key].list_outputs(body)
        ]

    def stop(self, metadata: dict[str, Any]) -> None:
        for key, metadata_value in metadata.items():
            self._by_key[key].stop(metadata_value)


NAME_LETTERS = string.ascii_letters + string.digits
LIMIT = 1024  # maximum characters of a FailureReason
SETTLE = 30.0  # maximum seconds to wait until the step of a callback has ended
log = logging.getLogger(__name__)

ListRuns = Callable[["Execution"], list[tuple[dict, str]]]
"""Function that returns pairs of a step record and its execution's ARN, for all executions of the
same pipeline.
"""


class Execution:
    """A pipeline execution. Create it and ``start`` it. ``record`` is its state, which is also on
    disk.
    """

    def __init__(
        self,
        directory: Path,
        record: dict,
        work: Work,
        objects: ObjectStore,
        list_runs: ListRuns,
        observe: Observe = ignore_change,
    ) -> None:
        self.record = record
        self.lock = threading.Condition(threading.RLock())
        self.directory, self.work = directory, work
        self.save_or_retry = RepeatedWrite(self.save, f"execution {directory.name}")
        self._objects, self._list_runs, self._observe = objects, list_runs, observe
        self._running: set[str] = set()
        self._timed_out = False
        self._stop, self._done_event = threading.Event(), threading.Event()
        if self._is_over:  # it ended in an earlier emulator: no thread of it is running
            self._done_event.set()

    @functools.cached_property
    def definition(self) -> Definition:
        return parse_definition((self.directory / "definition.json").read_bytes().decode())

    @functools.cached_property
    def _order(self) -> Order:
        return Order(self.definition, self.record)

    @property
    def arn(self) -> str:
        return self.record["answer"]["PipelineExecutionArn"]

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]

    @property
    def steps(self) -> dict[str, dict]:
        """Mapping of each started step to its record, in the order in which the steps started."""
        return self.record["steps"]

    @property
    def _is_over(self) -> bool:
        return self.record["answer"]["PipelineExecutionStatus"] in END_STATUSES

    def start(self) -> None:
        """Save the record, inform the observer, and run the execution in a thread."""
        self.save()
        self._observe(self.record, None)
        Thread(target=self._run, name=f"execution-{self.id}", daemon=True).start()

    def stop(self) -> None:
        """Stop the running steps, and start no others."""
        with self.lock:
            if self._stop.is_set() or self._is_over:
                return
            self._stop.set()
            running = [self.steps[name] for name in self._running]
            for record in running:
                record["StepStatus"] = "Stopping"
            self._set_status("Stopping")  # observers see the steps' statuses, too
            self.lock.notify_all()
        # Without the lock, because stopping a callback step sends a message.
        for record in running:
            self.work.stop(record.get("Metadata", {}))

    def wait(self) -> None:
        """Return when the end is on disk and all observers have been informed.

        The status changes to Succeeded, Failed or Stopped before that.
        """
        self._done_event.wait()

    def wait_for_callback(self, token: str) -> None:
        """Return when the step that waited with that callback token has ended, or after SETTLE
        seconds.
        """

        def is_settled() -> bool:
            for step in self.steps.values():
                callback = step.get("Metadata", {}).get("Callback", {})
                if callback.get("CallbackToken") == token and "EndTime" not in step:
                    return False
            return True

        with self.lock:
            self.lock.wait_for(is_settled, SETTLE)

    def save(self) -> None:
        with self.lock:
            self.record["answer"]["LastModifiedTime"] = time.time()
            write_json(self.directory / "execution.json", self.record)

    # the order of the steps

    def _run(self) -> None:
        """Start steps as :class:`Order` allows until none is running, then set the final status."""
        try:
            with self.lock:
                while True:
                    for step in (
                        [] if self._stop.is_set() else self._order.list_ready_steps(self._running)
                    ):
                        self._start_step(step)
                    if not self._running:
                        break
                    self.lock.wait()
                if self._stop.is_set() and not self._timed_out:
                    self._set_status("Stopped")
                else:
                    self._set_status(*self._order.compute_outcome())
                # Free memory: an ended execution is only described.
                del self.definition, self._order
        finally:
            self._done_event.set()

    def _start_step(self, step: Step) -> None:
        """Record the start of a step, and run it in a thread of its own."""
        members = {"StepDisplayName": "DisplayName", "StepDescription": "Description"}
        texts = {key: text for key, name in members.items() if (text := step.document.get(name))}
        self.steps[step.name] = {
            "StepName": step.name,
            "StepType": step.type,  # for events; not in the API's responses
            **texts,
            "StartTime": time.time(),
            "StepStatus": "Executing",
            "AttemptCount": 1,
            "Metadata": {},
            **({"IterationContext": step.iteration} if step.iteration else {}),
        }
        self._running.add(step.name)
        self.save_or_retry()
        self._observe(self.record, step.name)
        Thread(target=self._run_step, args=(step,), daemon=True).start()

    def _set_status(self, status: str, reason: str | None = None) -> None:
        """Set the execution's status and reason, save the record, and inform the observer."""
        answer = self.record["answer"]
        answer["PipelineExecutionStatus"] = status
        if reason:
            answer["FailureReason"] = reason[:LIMIT]
        self.save_or_retry()
        self._observe(self.record, None)

    # one step

    def _run_step(self, step: Step) -> None:
        """Run a step to its end, and record its final status. Runs in a thread of its own."""
        record = self.steps[step.name]
        status = "Failed"
        reason: str | None = DEFECT  # until the real reason is known
        try:
            self._run_with_retries(step, record)
            status, reason = "Succeeded", None
        except StepStopped:
            status, reason = "Stopped", None
        except (StepFailed, ExpressionError) as failure:
            status, reason = "Failed", str(failure)
            self._timed_out |= isinstance(failure, StepTimedOut)
        except ClientFault as fault:
            status, reason = "Failed", f"ClientError: {fault}"
        except (ApiError, EmulatorError, OSError) as error:
            log.exception("step %s of %s failed in the emulator", step.name, self.id)
            status, reason = "Failed", f"InternalServerError: {error}"
        finally:
            with self.lock:
                record |= {"StepStatus": status, "EndTime": time.time()}
                record |= {"FailureReason": reason[:LIMIT]} if reason else {}
                self._running.discard(step.name)
                self.save_or_retry()
                self._observe(self.record, step.name)
                self.lock.notify_all()

    def _run_with_retries(self, step: Step, record: dict) -> None:
        """Run the step, and run it again after a failure as its RetryPolicies specify. Raises
        StepFailed, StepStopped.
        """
        retries = Retries(step.document.get("RetryPolicies") or [], record["StartTime"])
        while True:
            try:
                self._attempt_step(step, record)
                return
            except StepFailed as failure:
                delay = retries.schedule_retry(str(failure), failure.code)
                if delay is None:
                    raise
                if self._stop.wait(delay):
                    raise StepStopped from None
                with self.lock:
                    record["AttemptCount"] += 1
                    self.save_or_retry()

    def _attempt_step(self, step: Step, record: dict) -> None:
        """Run the step once, or reuse a result from the cache. Raises StepFailed, StepStopped."""
        kind, runner = get_step_type(step.type), self.work.get_runner(step.type)
        name = self._make_unique_name(step)
        scope = self._make_scope({f"{kind.job.api}Name": name} if kind.job else {})
        arguments = step.arguments if runner.resolves else evaluate_value(step.arguments, scope)
        signature = step_cache.compute_signature(step, arguments)
        if signature and self._reuse_cached_result(step, record, signature):
            return

        # After the signature, so that a result of another trial is still a cache hit.
        if step.type in KINDS and (config := self.record["answer"].get("PipelineExperimentConfig")):
            own_config = arguments.get("ExperimentConfig", {})
            arguments = arguments | {"ExperimentConfig": config | own_config}

        def note(metadata: dict) -> None:
            self._store_metadata(record, {kind.metadata_key: metadata})

        fields = evaluate_value(step.fields, scope)
        self._check_permissions(step, name, arguments, fields)
        runner.run(
            Attempt(
                arguments=arguments,
                fields=fields,
                name=name,
                scope=scope,
                note=note,
                iterate=functools.partial(self._run_loop, step),
            )
        )
        outputs = step_cache.take_snapshot(
            self._objects, self.work.list_outputs(record["Metadata"])
        )
        with self.lock:
            record |= {"signature": signature, "outputs": outputs}

    def _check_permissions(self, step: Step, name: str, arguments: dict, fields: dict) -> None:
        """Check that the pipeline's role may do what the step does. Raises StepFailed if it may
        not.
        """
        authority = self.work.authority
        if caller := authority.find_role_caller(self._role):
            calls = list(iter_step_calls(step.type, name, arguments, fields))
            try:
                authority.check(caller, calls)
            except ApiError as denial:
                raise make_failure(calls[0].action, denial) from None

    @property
    def _role(self) -> str:
        return self.record["answer"]["RoleArn"]

    def _run_loop(self, loop: Step, items: list) -> dict[str, dict]:
        """Run a loop's body for each item and wait for the end. Return the record of every step by
        name; the record is empty if the step did not start.

        In a retry, steps that succeeded with the same item are not run again.
        """
        children = unroll_loop(self.definition, loop, items)
        with self.lock:
            for child in children:
                earlier = self.steps.get(child.name, {})
                if earlier.get("IterationContext") != child.iteration:
                    self.steps.pop(child.name, None)
                self._order.children[child.name] = child
            self.lock.notify_all()
            self.lock.wait_for(lambda: self._is_loop_over(children))
            return {child.name: dict(self.steps.get(child.name, {})) for child in children}

    def _is_loop_over(self, children: list[Step]) -> bool:
        """Return whether none of the steps is running and none will start."""
        if any(child.name in self._running for child in children):
            return False
        return self._stop.is_set() or not any(map(self._order.may_start, children))

    def _make_scope(self, names: dict[str, str]) -> ExecutionScope:
        objects = restrict_objects(self.work.authority, self._role)
        return ExecutionScope(self.record, self.definition, self.work.describe, objects, names)

    def _make_unique_name(self, step: Step) -> str:
        """Return ``pipelines-<execution>-<step>-<10 random>``, cut to the 63 characters of a job
        name.

        With the SDK's use_custom_job_prefix, the Arguments contain a name, which replaces
        "pipelines" and the step's name.
        """
        kind = get_step_type(step.type)
        custom = step.arguments.get(kind.made_up) if kind.job else None
        random_part = "".join(secrets.choice(NAME_LETTERS) for _ in range(10))
        if custom:
            # 39 = 63 - 12 (the execution's id) - 10 (random characters) - 2 (hyphens).
            prefix = str(evaluate_value(custom, self._make_scope({})))[:39]
            return f"{prefix.rstrip('-')}-{self.id}-{random_part}"
        name = step.name.replace("_", "-")[:28].strip("-")
        return f"pipelines-{self.id}-{name}-{random_part}"

    def _reuse_cached_result(self, step: Step, record: dict, signature: str) -> bool:
        """Use the result of an earlier run if the cache has one. Return whether it has."""
        hit = step_cache.find_cached_run(self._objects, self._list_runs(self), step, signature)
        if not hit:
            return False
        earlier, arn = hit
        with self.lock:
            record["CacheHitResult"] = {"SourcePipelineExecutionArn": arn}
            record["outputs"] = earlier["outputs"]
        self._store_metadata(record, earlier["Metadata"])
        return True

    def _store_metadata(self, record: dict, metadata: dict) -> None:
        """Store the step's Metadata, and stop the work that they describe if the execution is being
        stopped.
        """
        with self.lock:
            record["Metadata"] = metadata
            self.save_or_retry()
            late = self._stop.is_set()
        if late:  # the execution was stopped while the job was being created
            self.work.stop(metadata)
