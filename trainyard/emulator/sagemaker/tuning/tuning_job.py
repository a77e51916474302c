"""A tuning job: start, watch and stop its training jobs.

<state>/tuning/<name>/tuning.json   the request, the status, and the names of its training jobs

Hyperparameters and results are in the training jobs' own records, jobs/<name>/job.json, so killing
the emulator loses no job that has ended. For each training job, tuning.json has its name and
what its record does not contain: its definition, why it was stopped, and which job it repeats.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.common.errors import EmulatorError
from trainyard.emulator.json_documents import write_json
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.request_scope import ApiError, Thread, make_validation_error
from trainyard.emulator.sagemaker.jobs.job import DEFECT, Job
from trainyard.emulator.sagemaker.jobs.job_api import Jobs
from trainyard.emulator.sagemaker.tuning.objective_curves import EarlyStopper
from trainyard.emulator.sagemaker.tuning.search_strategies import (
    LABEL,
    STRATEGIES,
    Question,
    Space,
    Trial,
    Values,
    count_combinations,
    is_in_space,
)
from trainyard.emulator.sagemaker.tuning.tuning_request import (
    CONFIG,
    JOBS,
    MOST_JOBS,
    find_metric_definition,
    find_objective,
    find_ranges,
    list_definitions,
)
from trainyard.emulator.sagemaker.tuning.tuning_results import (
    IDLE,
    OBJECTIVE,
    Result,
    TrainingDefinition,
    build_training_request,
    count_instances,
    count_jobs_without_improvement,
    count_statuses,
    describe_definitions,
    explain_failure,
    find_convergence_time,
    has_unused_drivers,
    is_criterion_met,
    parse_training_definition,
    rank_results,
)
from trainyard.language.definition_document import JOB_ENDED

INTERVAL = 0.1  # seconds between checks of the training jobs
KIND = "Training"
STOP_REASON = "the tuning job was stopped"
DONE_REASON = "the tuning job is done"
log = logging.getLogger(__name__)


class TuningJob:
    """A tuning job. Create it and ``start`` it. ``document`` is its state, which is also on disk.

    Args:
        directory: folder of tuning.json.
        document: request, answer (members of Describe's response) and trials (the training jobs).
        jobs: the training jobs.
        logs: the log streams, from which objective values are read.
        parents: returns the results of the training jobs of WarmStartConfig's parents.
    """

    def __init__(
        self,
        directory: Path,
        document: dict[str, Any],
        jobs: Jobs,
        logs: LogStore,
        parents: Callable[[], Sequence[Result]],
    ) -> None:
        self.document = document
        self.lock = threading.RLock()
        self._path = directory / "tuning.json"
        self._jobs, self._parents = jobs, parents
        self._training_definitions = [
            parse_training_definition(self.request, d) for d in list_definitions(self.request)
        ]
        self._live: dict[str, Job] = {}
        self._ended_results: dict[str, Result] = {}
        self._watch = EarlyStopper(logs)
        self._stop = threading.Event()
        self._done_event = threading.Event()
        self._start_time = time.time()

    @property
    def request(self) -> dict[str, Any]:
        return self.document["request"]

    @property
    def answer(self) -> dict[str, Any]:
        """Members of Describe's response that do not follow from the request or the training
        jobs.
        """
        return self.document["answer"]

    @property
    def name(self) -> str:
        return str(self.request["HyperParameterTuningJobName"])

    @property
    def status(self) -> str:
        return str(self.answer["HyperParameterTuningJobStatus"])

    # life cycle

    def start(self) -> None:
        """Save the status, and run the tuning job in a thread."""
        self._set_status("InProgress")
        Thread(target=self._run, name=f"tuning-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """Stop the running training jobs, and start no others."""
        with self.lock:
            if self.status in JOB_ENDED or self._stop.is_set():
                return
            self._stop.set()
            self._set_status("Stopping")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the tuning job has ended; return False if that takes more than ``timeout``
        seconds.
        """
        return self._done_event.wait(timeout)

    def _run(self) -> None:
        """Start and stop training jobs until the search ends, then record the end. Runs in a
        thread.
        """
        status, reason = "Failed", DEFECT
        try:
            while not (end := self._decide_end()):
                self._start_training_jobs()
                self._stop_early()
                self._stop.wait(INTERVAL)
            status, reason = end
        except (ApiError, EmulatorError, OSError) as error:
            if self._stop.is_set():  # an emulator that is stopping refuses to create jobs
                status, reason = "Stopped", ""
            else:
                log.exception("tuning job %s failed in the emulator", self.name)
                reason = f"InternalServerError: the emulator failed: {error}"
        finally:
            stop_reason = STOP_REASON if self._stop.is_set() else DONE_REASON
            for result in self._list_running_results():
                self._halt_job(result.name, stop_reason)
            for job in list(self._live.values()):
                job.wait()
            self.list_results()  # reads the records of the jobs that have just ended
            with self.lock:
                self.answer["HyperParameterTuningEndTime"] = time.time()
                self.document["seconds"] = self._measure_runtime()
                self._set_status(status, reason)
            self._done_event.set()

    def _decide_end(self) -> tuple[str, str] | None:
        """Return the final status and the reason of a failure. Return None while the tuning job
        continues.
        """
        if self._stop.is_set():
            return "Stopped", ""
        config, results = self.request[CONFIG], self._list_final_results()
        has_more = (
            bool(self._list_jobs_to_repeat()) or self._count_tries() < self._compute_job_limit()
        )
        last = not has_more and all(result.has_ended for result in results)
        if reason := explain_failure(results, last):
            return "Failed", reason
        seconds = config["ResourceLimits"].get("MaxRuntimeInSeconds", float("inf"))
        criteria = config.get("TuningJobCompletionCriteria") or {}
        is_complete = (
            last or is_criterion_met(criteria, results) or self._measure_runtime() >= seconds
        )
        return ("Completed", "") if is_complete else None

    # the training jobs

    def _compute_job_limit(self) -> int:
        """Return the maximum number of training jobs, without repeated ones."""
        config = self.request[CONFIG]
        if config["Strategy"] == "Grid":
            return sum(
                count_combinations(definition.space) for definition in self._training_definitions
            )
        quota = MOST_JOBS.get(config["Strategy"], JOBS)
        return int(config["ResourceLimits"].get("MaxNumberOfTrainingJobs", quota))

    def _count_tries(self) -> int:
        """Return the number of training jobs that were started, without repetitions."""
        return sum("anew" not in trial for trial in self._list_trials())

    def _list_trials(self) -> list[dict[str, Any]]:
        with self.lock:
            return list(self.document["trials"])

    def _list_jobs_to_repeat(self) -> list[Result]:
        """Return the results of the jobs that must be repeated after a failure outside the job."""
        repeated_names = {trial.get("anew") for trial in self._list_trials()}
        return [
            r
            for r in self.list_results()
            if r.name not in repeated_names and self._is_repeatable(r)
        ]

    def _is_repeatable(self, result: Result) -> bool:
        """Return whether the job is to be run again: it failed for a reason outside the job, and
        RetryStrategy allows another attempt.
        """
        trial = self._find_trial(result.name)
        strategy = self._find_definition(trial).document.get("RetryStrategy") or {}
        attempts = trial.get("attempt", 1)
        return result.is_retryable and attempts <= strategy.get("MaximumRetryAttempts", 0)

    def _find_trial(self, name: str) -> dict[str, Any]:
        return next(trial for trial in self._list_trials() if trial["name"] == name)

    def _find_definition(self, trial: Mapping[str, Any]) -> TrainingDefinition:
        return self._training_definitions[trial["definition"]]

    def _start_training_jobs(self) -> None:
        """Start as many training jobs as the limits allow, those to repeat first."""
        limit = self.request[CONFIG]["ResourceLimits"]["MaxParallelTrainingJobs"]
        while len(self._list_running_results()) < limit and not self._stop.is_set():
            if repeats := self._list_jobs_to_repeat():
                result = repeats[0]
                trial = self._find_trial(result.name)
                more = {"anew": result.name, "attempt": trial.get("attempt", 1) + 1}
                self._start_training_job({"definition": trial["definition"], **more}, result.values)
            elif self._count_tries() < self._compute_job_limit():
                number = self._count_tries()
                definition, values = self._choose_values(number)
                self._start_training_job({"definition": definition}, values)
            else:
                return

    def _start_training_job(self, trial: dict[str, Any], values: Values) -> None:
        """Start a training job with these hyperparameters, and record it."""
        name = f"{self.name}-{len(self._list_trials()) + 1:03}-{secrets.token_hex(4)}"
        definition = self._find_definition(trial)
        job_request = build_training_request(self.request, definition.document, name, values)
        with self.lock:  # the name is saved first: an unrecorded job would be lost
            self.document["trials"].append({"name": name, **trial})
            self._save()
        about = {"TuningJobArn": self.answer["HyperParameterTuningJobArn"]}
        try:
            self._live[name] = self._jobs.create(KIND, job_request, about)
        except ApiError:
            with self.lock:
                # The trial that was just added: only this thread adds any.
                del self.document["trials"][-1]
            raise
        strategy = self.request[CONFIG]["Strategy"]
        label = f": {LABEL}" if strategy == "Bayesian" else ""
        self._write_notice(name, f"tuning job {self.name}, strategy {strategy}{label}; {values}")
        if has_unused_drivers(definition.document):
            self._write_notice(name, IDLE)

    def _choose_values(self, number: int) -> tuple[int, Values]:
        """Return the index of the training definition, and the hyperparameters of job ``number``,
        counted from 0.
        """
        strategy = self.request[CONFIG]["Strategy"]
        index, position = number % len(self._training_definitions), number
        if strategy == "Grid":
            for index, definition in enumerate(self._training_definitions):  # noqa: B007 - the definition at the break
                if position < count_combinations(definition.space):
                    break
                position -= count_combinations(definition.space)
        definition = self._training_definitions[index]
        parent_trials, first = select_warm_start_results(
            self.request, definition.space, self._parents()
        )
        if number < len(first):
            return index, first[number]
        trials = [
            *parent_trials,
            *(
                Trial(r.values, r.objective, has_failed=r.objective_status == "Failed")
                for r in self._list_final_results()
                if r.definition == definition.name
            ),
        ]
        seed = str(self.request[CONFIG].get("RandomSeed", self.name))
        question = Question(definition.space, trials, definition.minimize, seed, position)
        return index, STRATEGIES[strategy](question)

    def _stop_early(self) -> None:
        """Stop the jobs that the early-stopping rule ends because of the values that they have
        printed.
        """
        for index, definition in enumerate(self._training_definitions):
            if definition.rule is None:
                continue
            trials = [trial for trial in self._list_trials() if trial["definition"] == index]
            metric, nodes = (
                find_metric_definition(self.request, definition.document),
                count_instances(definition.document),
            )
            for trial in trials:
                self._watch.read_new_values(
                    trial["name"], nodes, metric, has_ended=trial["name"] in self._ended_results
                )
            names = [trial["name"] for trial in trials if "stopped" not in trial]
            running = {result.name for result in self._list_running_results()}
            for name in (name for name in names if name in running):
                order = [trial["name"] for trial in trials]
                reason = self._watch.find_stop_reason(name, definition.rule, order)
                if reason:  # a job that ignores SIGTERM would only delay the others
                    self._halt_job(name, reason, unheard=0.0)

    def _list_running_results(self) -> list[Result]:
        return [result for result in self.list_results() if not result.has_ended]

    def _halt_job(self, name: str, reason: str, unheard: float | None = None) -> None:
        """Stop the training job, and record the reason."""
        with self.lock:
            self._find_trial(name).setdefault("stopped", reason)
            self._save()
        self._write_notice(name, reason)
        if job := self._live.get(name):
            job.stop(unheard=unheard)

    def _write_notice(self, name: str, text: str) -> None:
        """Write a line of the emulator to the log of a running job."""
        if job := self._live.get(name):
            job.write_notice("algo-1", text)

    # results

    def list_results(self) -> list[Result]:
        """Return the results of all its training jobs, in the order of their start."""
        results = []
        for trial in self._list_trials():
            name = trial["name"]
            result = self._ended_results.get(name) or self._read_result(trial)
            if result is None:
                continue  # the emulator was killed before it created the job
            if result.has_ended:
                self._ended_results[name] = result
                self._live.pop(name, None)
            results.append(result)
        return results

    def _read_result(self, trial: Mapping[str, Any]) -> Result | None:
        """Return the result of a training job; None if the job does not exist."""
        definition = self._find_definition(trial)
        try:
            record = self._jobs.describe(KIND, trial["name"])
        except ApiError:
            return None
        tuned_names = frozenset(item.name for item in definition.space)
        return Result(self.name, definition.name, record, tuned_names, definition.minimize)

    def _list_final_results(self) -> list[Result]:
        """Return the results without those of jobs that are or will be repeated."""
        repeated_names = {trial.get("anew") for trial in self._list_trials()}
        return [
            r
            for r in self.list_results()
            if r.name not in repeated_names and not self._is_repeatable(r)
        ]

    def describe(self) -> dict[str, Any]:
        """Return the response of DescribeHyperParameterTuningJob."""
        results = self.list_results()
        with self.lock:
            answer = {**self.request, **self.answer}
        answer.pop("Tags", None)
        answer |= describe_definitions(self.request)
        best = rank_results(results)
        convergence_time = find_convergence_time(results)
        answer |= {
            **count_statuses(results),
            "TuningJobCompletionDetails": {
                "NumberOfTrainingJobsObjectiveNotImproving": count_jobs_without_improvement(
                    results
                ),
                **({"ConvergenceDetectedTime": convergence_time} if convergence_time else {}),
            },
            "ConsumedResources": {"RuntimeInSeconds": round(self._measure_runtime())},
        }
        if best:
            answer["BestTrainingJob"] = best[0].summarize()
        kind = (self.request.get("WarmStartConfig") or {}).get("WarmStartType")
        if kind == "IdenticalDataAndAlgorithm" and (
            every := rank_results([*results, *self._parents()])
        ):
            answer["OverallBestTrainingJob"] = every[0].summarize()
        return answer

    # the record

    def _measure_runtime(self) -> float:
        """Return the runtime of the tuning job in seconds, until now or until its end."""
        if self.status in JOB_ENDED:
            return float(self.document.get("seconds", 0.0))
        return time.time() - self._start_time

    def _set_status(self, status: str, reason: str = "") -> None:
        with self.lock:
            self.answer["HyperParameterTuningJobStatus"] = status
            self.answer["LastModifiedTime"] = time.time()
            if reason:
                self.answer["FailureReason"] = reason[:1024]
            self._save()

    def _save(self) -> None:
        write_json(self._path, self.document)


# WarmStartConfig: the allowed parents, and which of their results are used. The rules are those of
# the developer guide, "Run a Warm Start Hyperparameter Tuning Job". AWS does not publish how it
# uses the parents' results. Here, with IdenticalDataAndAlgorithm, Bayesian treats them as its own;
# with TransferLearning, whose values are not comparable, the parents' best combinations are tried
# first. Random, Grid and Hyperband do not use them.

CHANGES = 10
FIRST = 3
"""Number of each parent's best combinations that are tried first with TransferLearning."""
IDENTICAL, TRANSFER = "IdenticalDataAndAlgorithm", "TransferLearning"
_END_STATUSES = ("Completed", "Failed", "Stopped")


def list_parents(request: Mapping[str, Any]) -> list[str]:
    """Return the names of the parent tuning jobs in a request's WarmStartConfig."""
    parents = (request.get("WarmStartConfig") or {}).get("ParentHyperParameterTuningJobs") or ()
    return [parent["HyperParameterTuningJobName"] for parent in parents]


def check_warm_start(request: Mapping[str, Any], parents: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that the parents fit the request.

    Args:
        request: CreateHyperParameterTuningJob's request.
        parents: name of each parent to Describe's response for it.

    Raises:
        ApiError: a rule is broken; the message names the first.
    """
    config = request.get("WarmStartConfig")
    if not config:
        return
    for name, parent in parents.items():
        for fault in _iter_parent_faults(request, parent, config["WarmStartType"]):
            raise make_validation_error(f"WarmStartConfig, parent {name}: {fault}")


def _iter_parent_faults(
    request: Mapping[str, Any], parent: Mapping[str, Any], kind: str
) -> Iterator[str]:
    """Iterate over the reasons why the parent does not fit the request. ``kind``: WarmStartType."""
    status = parent["HyperParameterTuningJobStatus"]
    if status not in _END_STATUSES:
        yield f"it is {status}, expected a tuning job that has ended"
    own_definitions, parent_definitions = list_definitions(request), list_definitions(parent)
    if len(own_definitions) > 1 or len(parent_definitions) > 1:
        yield "several TrainingJobDefinitions are not warm-started by this emulator"
        return
    own_definition, other = own_definitions[0], parent_definitions[0]
    if find_objective(request, own_definition) != find_objective(parent, other):
        yield (
            f"its objective is {find_objective(parent, other)}, expected the same, "
            f"{find_objective(request, own_definition)}"
        )
    yield from _iter_kind_differences(
        _list_hyperparameter_kinds(request, own_definition),
        _list_hyperparameter_kinds(parent, other),
    )
    if kind == IDENTICAL:
        images = [d["AlgorithmSpecification"].get("TrainingImage") for d in (own_definition, other)]
        data = [d.get("InputDataConfig") for d in (own_definition, other)]
        for member, (own_value, parent_value) in {
            "TrainingImage": images,
            "InputDataConfig": data,
        }.items():
            if own_value != parent_value:
                yield f"{member} differs: {kind} requires the same; use {TRANSFER}"


def _iter_kind_differences(
    own_kinds: Mapping[str, str], parent_kinds: Mapping[str, str]
) -> Iterator[str]:
    """Iterate over the differences that AWS does not allow between the hyperparameters of a tuning
    job and of its parent.

    Both mappings have the kind of each tuned hyperparameter by name, and ``=value`` for a static
    one.
    """
    if len(own_kinds) != len(parent_kinds):
        yield (
            f"it has {len(parent_kinds)} static and tuned hyperparameters, expected "
            f"{len(own_kinds)}"
        )
    changes = 0
    for name in sorted({*own_kinds, *parent_kinds}):
        own_kind, other = own_kinds.get(name, "="), parent_kinds.get(name, "=")
        static = own_kind.startswith("="), other.startswith("=")
        if own_kind != other and not any(static):
            yield f"{name} is {other} in the parent and {own_kind} here: a type may not change"
        changes += 2 if all(static) and own_kind != other else static[0] != static[1]
    if changes > CHANGES:
        yield f"{changes} changes from tuned to static, or of static values: at most {CHANGES}"


def _list_hyperparameter_kinds(
    request: Mapping[str, Any], definition: Mapping[str, Any]
) -> dict[str, str]:
    """Return the kind of each tuned hyperparameter by name, and ``=value`` for a static one."""
    ranges = find_ranges(request, definition)
    static = definition.get("StaticHyperParameters") or {}
    return {name: f"={value}" for name, value in static.items() if name != OBJECTIVE} | {
        item["Name"]: kind.removesuffix("ParameterRanges")
        for kind, items in ranges.items()
        for item in items or ()
    }


def select_warm_start_results(
    request: Mapping[str, Any], space: Space, results: Sequence[Result]
) -> tuple[list[Trial], list[Values]]:
    """Return (results to continue the search from, combinations to try first), taken from the
    parents' training jobs.
    """
    usable = [result for result in rank_results(results) if is_in_space(space, result.values)]
    if not usable or request[CONFIG]["Strategy"] != "Bayesian":
        return [], []
    if request["WarmStartConfig"]["WarmStartType"] == IDENTICAL:
        return [Trial(result.values, result.objective) for result in usable], []
    first: list[Values] = []
    for parent in sorted({result.tuning for result in usable}):
        best = [result.values for result in usable if result.tuning == parent][:FIRST]
        first += [values for values in best if values not in first]
    return [], first
