"""Experiments and trials that a pipeline asks for, and a trial component for each of its jobs."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.language.statuses import JOB_ENDED

log = logging.getLogger(__name__)


class Experiments:
    """Creates the experiments, trials and components of a region's jobs and executions.

    ``forward``: answers the operations on experiments; its third argument has members that only
    SageMaker itself sets.
    """

    def __init__(self, forward: Callable[..., dict]) -> None:
        self._forward = forward

    def ensure(self, config: Mapping[str, str]) -> None:
        """Create the experiment and the trial, unless they exist."""
        experiment = {"ExperimentName": config["ExperimentName"]}
        trial = {"TrialName": config["TrialName"]}
        self._ensure("Experiment", experiment, {})
        self._ensure("Trial", trial, experiment)

    def check(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request to create a job, with the trial of its component.

        Raises:
            ApiError: the experiment or the trial does not exist, or a run is named.
        """
        if not (config := dict(request.get("ExperimentConfig", {}))):
            return request
        if "RunName" in config:
            message = "ExperimentConfig.RunName is not implemented here: name a TrialName"
            raise ApiError("ValidationException", message)
        for name in config.keys() & {"ExperimentName", "TrialName"}:
            self._forward(f"Describe{name.removesuffix('Name')}", {name: config[name]})
        if "ExperimentName" in config:  # without a trial a new one is created
            self.ensure({"TrialName": request[f"{kind}JobName"]} | config)
            config.setdefault("TrialName", request[f"{kind}JobName"])
        return request | {"ExperimentConfig": config}

    def of_job(self, kind: str, record: dict[str, Any]) -> None:
        """Create the component of a job that has ended and was created with an ExperimentConfig."""
        config = record.get("ExperimentConfig")
        if not config or record[f"{kind}JobStatus"] not in JOB_ENDED:
            return
        arn = record[f"{kind}JobArn"]
        component = {"TrialComponentName": f"{arn.rpartition('/')[2]}-aws-{kind.lower()}-job"}
        request: dict[str, Any] = dict(component)
        request["DisplayName"] = config.get("TrialComponentDisplayName", *component.values())
        status = record[f"{kind}JobStatus"]
        request["Status"] = {"PrimaryStatus": status}
        if reason := record.get("FailureReason"):
            request["Status"]["Message"] = reason[:1024]
        times = {"StartTime": f"{kind}StartTime", "EndTime": f"{kind}EndTime"}
        request |= {name: record[key] for name, key in times.items() if key in record}
        source = {"SourceArn": arn, "SourceType": f"SageMaker{kind}Job"}
        try:
            self._forward("CreateTrialComponent", request, {"Source": source})
            if trial := config.get("TrialName"):
                self._forward("AssociateTrialComponent", component | {"TrialName": trial})
        except ApiError as failure:  # reported twice, or the trial was deleted meanwhile
            log.warning("%s: its trial component: %s", arn, failure)

    def _ensure(self, kind: str, names: dict[str, str], more: dict[str, str]) -> None:
        try:
            self._forward(f"Describe{kind}", names)
        except ApiError as failure:
            if failure.code != "ResourceNotFound":
                raise
            self._forward(f"Create{kind}", names | more)
