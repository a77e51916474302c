"""A tuning job: starts, watches and stops its training jobs.

<state>/tuning/<name>/tuning.json   the request, the status, and the names of its training jobs

Hyperparameters and results are in the training jobs' own records, jobs/<name>/job.json: a kill of
the emulator loses nothing that has ended. Beside a job's name, tuning.json has only what its record
lacks: its definition, why it was stopped, and which job it repeats.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.common.errors import EmulatorError
from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.job import DEFECT, Job
from trainyard.emulator.jobs.job_api import LOST, Jobs
from trainyard.emulator.json_documents import write_json
from trainyard.emulator.request_scope import Thread
from trainyard.emulator.services.log_store import LogStore
from trainyard.emulator.tuning.objective_curves import Watch
from trainyard.emulator.tuning.search_space import Values, size
from trainyard.emulator.tuning.search_strategies import LABEL, STRATEGIES, Question, Trial
from trainyard.emulator.tuning.trial_jobs import (
    IDLE,
    Defined,
    described,
    drivers_idle,
    instances,
    read,
    training_request,
)
from trainyard.emulator.tuning.tuning_request import (
    CONFIG,
    JOBS,
    MOST_JOBS,
    definitions,
    metric_of,
)
from trainyard.emulator.tuning.tuning_results import (
    Result,
    converged_at,
    counters,
    hopeless,
    met,
    not_improving,
    ranked,
)
from trainyard.emulator.tuning.warm_start import learned
from trainyard.language.statuses import JOB_ENDED

INTERVAL = 0.1  # seconds between checks of the training jobs
KIND = "Training"
STOPPED = "the tuning job was stopped"
DONE = "the tuning job is done"
log = logging.getLogger(__name__)


class TuningJob:
    """A tuning job. Create it, ``start`` it; ``document`` is its state, also on disk.

    Args:
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
        self._defined = [read(self.request, d) for d in definitions(self.request)]
        self._live: dict[str, Job] = {}
        self._ended: dict[str, Result] = {}
        self._watch = Watch(logs)
        self._stop = threading.Event()
        self._done = threading.Event()
        self._begun = time.time()

    @property
    def request(self) -> dict[str, Any]:
        return self.document["request"]

    @property
    def answer(self) -> dict[str, Any]:
        """Members of Describe's answer that do not follow from the request or the training jobs."""
        return self.document["answer"]

    @property
    def name(self) -> str:
        return str(self.request["HyperParameterTuningJobName"])

    @property
    def status(self) -> str:
        return str(self.answer["HyperParameterTuningJobStatus"])

    # life

    def start(self) -> None:
        self._set_status("InProgress")
        Thread(target=self._run, name=f"tuning-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """Start no further training job, and stop the running ones."""
        with self.lock:
            if self.status in JOB_ENDED or self._stop.is_set():
                return
            self._stop.set()
            self._set_status("Stopping")

    def wait(self, timeout: float | None = None) -> bool:
        return self._done.wait(timeout)

    def _run(self) -> None:
        status, reason = "Failed", DEFECT
        try:
            while not (end := self._end()):
                self._launch()
                self._spare()
                self._stop.wait(INTERVAL)
            status, reason = end
        except (ApiError, EmulatorError, OSError) as error:
            if self._stop.is_set():  # an emulator that stops creates no further job
                status, reason = "Stopped", ""
            else:
                log.exception("tuning job %s failed in the emulator", self.name)
                reason = f"InternalServerError: the emulator failed: {error}"
        finally:
            self._stop_all(STOPPED if self._stop.is_set() else DONE)
            with self.lock:
                self.answer["HyperParameterTuningEndTime"] = time.time()
                self.document["seconds"] = self._seconds()
                self._set_status(status, reason)
            self._done.set()

    def _end(self) -> tuple[str, str] | None:
        """Return the final status and the failure's reason; None while there is something to do."""
        if self._stop.is_set():
            return "Stopped", ""
        config, results = self.request[CONFIG], self._counted()
        last = not self._more() and all(result.ended for result in results)
        if why := hopeless(results, last):
            return "Failed", why
        seconds = config["ResourceLimits"].get("MaxRuntimeInSeconds", float("inf"))
        criteria = config.get("TuningJobCompletionCriteria") or {}
        done = last or met(criteria, results) or self._seconds() >= seconds
        return ("Completed", "") if done else None

    # the training jobs

    def _more(self) -> bool:
        """Return whether there is a combination left to train."""
        return bool(self._anew()) or self._tried() < self._most()

    def _most(self) -> int:
        config = self.request[CONFIG]
        if config["Strategy"] == "Grid":
            return sum(size(defined.space) for defined in self._defined)
        quota = MOST_JOBS.get(config["Strategy"], JOBS)
        return int(config["ResourceLimits"].get("MaxNumberOfTrainingJobs", quota))

    def _tried(self) -> int:
        return sum("anew" not in trial for trial in self._trials())

    def _trials(self) -> list[dict[str, Any]]:
        with self.lock:
            return list(self.document["trials"])

    def _anew(self) -> list[Result]:
        """Return jobs to repeat, which failed for reasons outside of them."""
        again = {trial.get("anew") for trial in self._trials()}
        return [r for r in self.results() if r.name not in again and self._again(r)]

    def _again(self, result: Result) -> bool:
        trial = self._trial(result.name)
        stopped = trial.get("resumed") and result.status == "Stopped"
        if stopped or result.record.get("FailureReason") == LOST:
            return True
        strategy = self._of(trial).document.get("RetryStrategy") or {}
        attempts = trial.get("attempt", 1)
        return result.retryable and attempts <= strategy.get("MaximumRetryAttempts", 0)

    def _trial(self, name: str) -> dict[str, Any]:
        return next(trial for trial in self._trials() if trial["name"] == name)

    def _of(self, trial: Mapping[str, Any]) -> Defined:
        return self._defined[trial["definition"]]

    def _launch(self) -> None:
        limit = self.request[CONFIG]["ResourceLimits"]["MaxParallelTrainingJobs"]
        while len(self._running()) < limit and not self._stop.is_set():
            if anew := self._anew():
                self._repeat(anew[0])
            elif self._tried() < self._most():
                number = self._tried()
                definition, values = self._asked(number)
                self._create({"definition": definition}, values)
            else:
                return

    def _repeat(self, failed: Result) -> None:
        trial = self._trial(failed.name)
        more = {"anew": failed.name, "attempt": trial.get("attempt", 1) + 1}
        self._create({"definition": trial["definition"], **more}, failed.values)

    def _create(self, trial: dict[str, Any], values: Values) -> None:
        name = f"{self.name}-{len(self._trials()) + 1:03}-{secrets.token_hex(4)}"
        defined = self._of(trial)
        asked = training_request(self.request, defined.document, name, values)
        with self.lock:  # first the name: an unrecorded job would be lost
            self.document["trials"].append({"name": name, **trial})
            self._save()
        about = {"TuningJobArn": self.answer["HyperParameterTuningJobArn"]}
        try:
            self._live[name] = self._jobs.create(KIND, asked, about)
        except ApiError:
            with self.lock:
                del self.document["trials"][-1]
            raise
        strategy = self.request[CONFIG]["Strategy"]
        label = f": {LABEL}" if strategy == "Bayesian" else ""
        self._say(name, f"tuning job {self.name}, strategy {strategy}{label}; {values}")
        if drivers_idle(defined.document):
            self._say(name, IDLE)

    def _asked(self, number: int) -> tuple[int, Values]:
        """Return the definition's index and the hyperparameters of combination ``number``, from
        0.
        """
        strategy = self.request[CONFIG]["Strategy"]
        index, position = number % len(self._defined), number
        if strategy == "Grid":
            for index, defined in enumerate(self._defined):  # noqa: B007 - the definition at the break
                if position < size(defined.space):
                    break
                position -= size(defined.space)
        defined = self._defined[index]
        known, first = learned(self.request, defined.space, self._parents())
        if number < len(first):
            return index, first[number]
        trials = [*known, *(_trial_of(r) for r in self._counted() if r.definition == defined.name)]
        seed = str(self.request[CONFIG].get("RandomSeed", self.name))
        question = Question(defined.space, trials, defined.minimize, seed, position)
        return index, STRATEGIES[strategy](question)

    def _spare(self) -> None:
        """Stop the jobs that the rule ends, by the values that they have printed."""
        for index, defined in enumerate(self._defined):
            if defined.rule is None:
                continue
            trials = [trial for trial in self._trials() if trial["definition"] == index]
            metric, nodes = metric_of(self.request, defined.document), instances(defined.document)
            for trial in trials:
                self._watch.read(trial["name"], nodes, metric, ended=trial["name"] in self._ended)
            names = [trial["name"] for trial in trials if "stopped" not in trial]
            running = {result.name for result in self._running()}
            for name in (name for name in names if name in running):
                said, why = self._watch.verdict(name, defined.rule, [t["name"] for t in trials])
                for line in said:
                    self._say(name, line)
                if why:  # a trial that hears of no stop would only keep the others waiting
                    self._halt(name, why, unheard=0.0)

    def _running(self) -> list[Result]:
        return [result for result in self.results() if not result.ended]

    def _stop_all(self, why: str) -> None:
        for result in self._running():
            self._halt(result.name, why)
        for job in list(self._live.values()):
            job.wait()
        self.results()

    def _halt(self, name: str, why: str, unheard: float | None = None) -> None:
        with self.lock:
            self._trial(name).setdefault("stopped", why)
            self._save()
        self._say(name, why)
        if job := self._live.get(name):
            job.stop(unheard=unheard)

    def _say(self, name: str, text: str) -> None:
        """Write a line of the emulator's own to the log of a running job."""
        if job := self._live.get(name):
            job.say("algo-1", text)

    # answers

    def results(self) -> list[Result]:
        """Return the results of all its training jobs in the order of their start."""
        found = []
        for trial in self._trials():
            name = trial["name"]
            result = self._ended.get(name) or self._result(trial)
            if result is None:
                continue  # killed before it was created
            if result.ended:
                self._ended[name] = result
                self._live.pop(name, None)
            found.append(result)
        return found

    def _result(self, trial: Mapping[str, Any]) -> Result | None:
        defined = self._of(trial)
        try:
            record = self._jobs.describe(KIND, trial["name"])
        except ApiError:
            return None
        tuned = frozenset(item.name for item in defined.space)
        return Result(self.name, defined.name, record, tuned, defined.minimize)

    def _counted(self) -> list[Result]:
        """Return the results without jobs that are repeated."""
        again = {trial.get("anew") for trial in self._trials()}
        return [r for r in self.results() if r.name not in again and not self._again(r)]

    def describe(self) -> dict[str, Any]:
        """Return DescribeHyperParameterTuningJob's answer."""
        results = self.results()
        with self.lock:
            answer = {**self.request, **self.answer}
        answer.pop("Tags", None)
        answer |= described(self.request)
        best = ranked(results)
        converged = converged_at(results)
        answer |= {
            **counters(results),
            "TuningJobCompletionDetails": {
                "NumberOfTrainingJobsObjectiveNotImproving": not_improving(results),
                **({"ConvergenceDetectedTime": converged} if converged else {}),
            },
            "ConsumedResources": {"RuntimeInSeconds": round(self._seconds())},
        }
        if best:
            answer["BestTrainingJob"] = best[0].summary()
        kind = (self.request.get("WarmStartConfig") or {}).get("WarmStartType")
        if kind == "IdenticalDataAndAlgorithm" and (every := ranked([*results, *self._parents()])):
            answer["OverallBestTrainingJob"] = every[0].summary()
        return answer

    # the record

    def carry_on(self) -> None:
        """Continue after a kill or a stop: finished training jobs are not repeated."""
        with self.lock:
            self._stop.clear()
            self._done.clear()
            self._begun = time.time()
            self.answer.pop("HyperParameterTuningEndTime", None)
            self.answer.pop("FailureReason", None)
            for trial in self.document["trials"]:
                if trial.get("stopped") == STOPPED:
                    trial["resumed"] = True
        self.start()

    def _seconds(self) -> float:
        """Return for how many seconds it has run, including the time before a kill."""
        before = float(self.document.get("seconds", 0.0))
        return before if self.status in JOB_ENDED else before + time.time() - self._begun

    def _set_status(self, status: str, reason: str = "") -> None:
        with self.lock:
            self.answer["HyperParameterTuningJobStatus"] = status
            self.answer["LastModifiedTime"] = time.time()
            if reason:
                self.answer["FailureReason"] = reason[:1024]
            self._save()

    def _save(self) -> None:
        write_json(self._path, self.document)


def _trial_of(result: Result) -> Trial:
    return Trial(result.values, result.objective, failed=result.objective_status == "Failed")
