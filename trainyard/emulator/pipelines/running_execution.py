"""An execution of a pipeline: runs the steps of its definition in their order.

    <state>/executions/<id>/execution.json   the record: answers, parameters, step records
    <state>/executions/<id>/definition.json  the definition that runs, byte for byte

A step starts, in its own thread, when all steps that it waits for have ended. When a step fails,
running steps go on to their end and no others start (except steps whose Trigger asks for the
failure); then the execution is Failed.
"""

import functools
import logging
import secrets
import string
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.emulator.api import ApiError
from trainyard.emulator.authorization.held_objects import held_objects
from trainyard.emulator.authorization.role_calls import step_calls
from trainyard.emulator.jobs.job import DEFECT, KINDS
from trainyard.emulator.jobs.transfers import ClientFault
from trainyard.emulator.json_documents import write_json
from trainyard.emulator.pipelines import step_cache
from trainyard.emulator.pipelines.checked_definition import Definition, Step, parse
from trainyard.emulator.pipelines.expression_scope import ExecutionScope
from trainyard.emulator.pipelines.step_order import (
    Observe,
    Order,
    Retries,
    ignore_change,
    unroll_loop,
)
from trainyard.emulator.pipelines.step_runners import Work
from trainyard.emulator.pipelines.steps.runner import (
    Attempt,
    StepFailed,
    StepStopped,
    StepTimedOut,
    make_failure,
)
from trainyard.emulator.request_scope import Thread
from trainyard.emulator.retrying_write import Late
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.language.evaluation import evaluate
from trainyard.language.expressions import ExpressionError
from trainyard.language.statuses import END_STATUSES
from trainyard.language.step_types import step_type

NAME_LETTERS = string.ascii_letters + string.digits
LIMIT = 1024  # characters of a FailureReason
SETTLE = 30.0  # longest wait, in seconds, until an answered callback's step has ended
log = logging.getLogger(__name__)

Hit = Callable[["Execution", Step, str], tuple[dict, str] | None]
"""Returns (step record, execution's ARN) of an earlier run with that signature, or None."""


class Execution:
    """A pipeline execution. Create it, ``start`` it; ``record`` is its state, also on disk."""

    def __init__(
        self,
        directory: Path,
        record: dict,
        work: Work,
        objects: ObjectStore,
        hit: Hit,
        observe: Observe = ignore_change,
    ) -> None:
        self.record = record
        self.lock = threading.Condition(threading.RLock())
        self.directory, self.work = directory, work
        self.keep = Late(self.save, f"execution {directory.name}")
        self._objects, self._hit, self._observe = objects, hit, observe
        self._running: set[str] = set()
        self._timed_out = False
        self._stop, self._done_event = threading.Event(), threading.Event()
        if self._is_over:  # in an earlier emulator: no part of it runs
            self._done_event.set()

    @functools.cached_property
    def definition(self) -> Definition:
        return parse((self.directory / "definition.json").read_bytes().decode())

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
        """Step name -> its record, in the order in which they started."""
        return self.record["steps"]

    @property
    def _is_over(self) -> bool:
        return self.record["answer"]["PipelineExecutionStatus"] in END_STATUSES

    @property
    def stopping(self) -> threading.Event:
        return self._stop

    def start(self) -> None:
        self.save()
        self._observe(self.record, None)
        Thread(target=self._run, name=f"execution-{self.id}", daemon=True).start()

    def stop(self) -> None:
        """Stop what runs; no further step starts."""
        with self.lock:
            if self._stop.is_set() or self._is_over:
                return
            self._stop.set()
            running = [self.steps[name] for name in self._running]
            for record in running:
                record["StepStatus"] = "Stopping"
            self._set_status("Stopping")  # observers see the steps' statuses, too
            self.lock.notify_all()
        for record in running:
            self.work.stop(record.get("Metadata", {}))

    def wait(self) -> None:
        """Return when the end is on disk and all observers have been informed.

        The status changes to Succeeded, Failed or Stopped earlier.
        """
        self._done_event.wait()

    def settle(self, token: str) -> None:
        """Return when the step that waited with that callback token has ended."""

        def is_settled() -> bool:
            steps = [step for step in self.steps.values() if _token(step) == token]
            return all("EndTime" in step for step in steps)

        with self.lock:
            self.lock.wait_for(is_settled, SETTLE)

    def save(self) -> None:
        with self.lock:
            self.record["answer"]["LastModifiedTime"] = time.time()
            write_json(self.directory / "execution.json", self.record)

    # the order of the steps

    def _run(self) -> None:
        try:
            with self.lock:
                while True:
                    for step in [] if self._stop.is_set() else self._order.ready(self._running):
                        self._begin(step)
                    if not self._running:
                        break
                    self.lock.wait()
                self._conclude()
                del self.definition, self._order  # the largest part: what has ended is described
        finally:
            self._done_event.set()

    def _begin(self, step: Step) -> None:
        members = {"StepDisplayName": "DisplayName", "StepDescription": "Description"}
        texts = {key: text for key, name in members.items() if (text := step.document.get(name))}
        self.steps[step.name] = {
            "StepName": step.name,
            "StepType": step.type,  # what events say; not in the API's answers
            **texts,
            "StartTime": time.time(),
            "StepStatus": "Executing",
            "AttemptCount": 1,
            "Metadata": {},
            **({"IterationContext": step.iteration} if step.iteration else {}),
        }
        self._running.add(step.name)
        self.keep()
        self._observe(self.record, step.name)
        Thread(target=self._run_step, args=(step,), daemon=True).start()

    def _conclude(self) -> None:
        if self._stop.is_set() and not self._timed_out:
            self._set_status("Stopped")
        else:
            self._set_status(*self._order.end())

    def _set_status(self, status: str, reason: str | None = None) -> None:
        answer = self.record["answer"]
        answer["PipelineExecutionStatus"] = status
        if reason:
            answer["FailureReason"] = reason[:LIMIT]
        self.keep()
        self._observe(self.record, None)

    # one step

    def _run_step(self, step: Step) -> None:
        record = self.steps[step.name]
        status = "Failed"
        reason: str | None = DEFECT  # until the real reason is known
        try:
            self._attempt_all(step, record)
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
                self.keep()
                self._observe(self.record, step.name)
                self.lock.notify_all()

    def _attempt_all(self, step: Step, record: dict) -> None:
        retries = Retries(step.document.get("RetryPolicies") or [], record["StartTime"])
        while True:
            try:
                self._attempt(step, record)
                return
            except StepFailed as failure:
                delay = retries.delay(str(failure), failure.code)
                if delay is None:
                    raise
                if self._stop.wait(delay):
                    raise StepStopped from None
                with self.lock:
                    record["AttemptCount"] += 1
                    self.keep()

    def _attempt(self, step: Step, record: dict) -> None:
        kind, runner = step_type(step.type), self.work.runner(step.type)
        name = self._unique_name(step)
        scope = self._scope({f"{kind.job.api}Name": name} if kind.job else {})
        arguments = step.arguments if runner.resolves else evaluate(step.arguments, scope)
        signature = step_cache.signature(step, arguments)
        if signature and self._reuse(step, record, signature):
            return

        if step.type in KINDS and (config := self.record["answer"].get("PipelineExperimentConfig")):
            own_config = arguments.get("ExperimentConfig", {})
            arguments = arguments | {"ExperimentConfig": config | own_config}

        def note(metadata: dict) -> None:
            self._note(record, {kind.metadata_key: metadata})

        fields = evaluate(step.fields, scope)
        self._ask_for(step, name, arguments, fields)
        runner.run(
            Attempt(
                arguments=arguments,
                fields=fields,
                name=name,
                scope=scope,
                note=note,
                iterate=functools.partial(self._iterate, step),
            )
        )
        outputs = step_cache.snapshot(self._objects, self.work.outputs(record["Metadata"]))
        with self.lock:
            record |= {"signature": signature, "outputs": outputs}

    def _ask_for(self, step: Step, name: str, arguments: dict, fields: dict) -> None:
        """Check that the pipeline's role may do what the step does. Raises StepFailed."""
        authority = self.work.authority
        if caller := authority.session(self._role):
            calls = list(step_calls(step.type, name, arguments, fields))
            try:
                authority.check(caller, calls)
            except ApiError as denial:
                raise make_failure(calls[0].action, denial) from None

    @property
    def _role(self) -> str:
        return self.record["answer"]["RoleArn"]

    def _iterate(self, loop: Step, items: list) -> dict[str, dict]:
        """Run a loop's body for each item, to the end; return every child's record, empty if not
        begun.

        In a retry, children that succeeded with the same item are not run again.
        """
        children = unroll_loop(self.definition, loop, items)
        with self.lock:
            for child in children:
                if _item(self.steps.get(child.name)) != child.iteration:
                    self.steps.pop(child.name, None)
                self._order.children[child.name] = child
            self.lock.notify_all()
            self.lock.wait_for(lambda: self._is_loop_over(children))
            return {child.name: dict(self.steps.get(child.name, {})) for child in children}

    def _is_loop_over(self, children: list[Step]) -> bool:
        """Return whether no child runs and none will."""
        if any(child.name in self._running for child in children):
            return False
        return self._stop.is_set() or not any(map(self._order.may_start, children))

    def _scope(self, names: dict[str, str]) -> ExecutionScope:
        objects = held_objects(self.work.authority, self._role)
        return ExecutionScope(self.record, self.definition, self.work.describe, objects, names)

    def _unique_name(self, step: Step) -> str:
        """Return ``pipelines-<execution>-<step>-<10 random>``, cut to the 63 characters of a job
        name.

        With the SDK's use_custom_job_prefix the Arguments hold a name, which replaces
        "pipelines" and the step's name.
        """
        kind = step_type(step.type)
        custom = step.arguments.get(kind.made_up) if kind.job else None
        chance = "".join(secrets.choice(NAME_LETTERS) for _ in range(10))
        if custom:
            prefix = str(evaluate(custom, self._scope({})))[:39]
            return f"{prefix.rstrip('-')}-{self.id}-{chance}"
        name = step.name.replace("_", "-")[:28].strip("-")
        return f"pipelines-{self.id}-{name}-{chance}"

    def _reuse(self, step: Step, record: dict, signature: str) -> bool:
        hit = self._hit(self, step, signature)
        if not hit:
            return False
        earlier, arn = hit
        with self.lock:
            record["CacheHitResult"] = {"SourcePipelineExecutionArn": arn}
            record["outputs"] = earlier["outputs"]
        self._note(record, earlier["Metadata"])
        return True

    def _note(self, record: dict, metadata: dict) -> None:
        with self.lock:
            record["Metadata"] = metadata
            self.keep()
            late = self._stop.is_set()
        if late:  # a stop was requested while the job was being created
            self.work.stop(metadata)


def _token(record: dict) -> str | None:
    return record.get("Metadata", {}).get("Callback", {}).get("CallbackToken")


def _item(record: dict | None) -> dict | None:
    return record.get("IterationContext") if record else None
