"""Batch transform jobs: send S3 objects through containers that start as for an endpoint.

The contract is AWS's: "Use Your Own Inference Code with Batch Transform" and "Associate Prediction
Results with Input Records" in the developer guide. An object that fails has no output; the other
objects are still processed, and the job ends as Failed.
"""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar

from trainyard.emulator.client_environment import Access
from trainyard.emulator.containers.isolation import choose_isolation
from trainyard.emulator.containers.node import Node
from trainyard.emulator.request_scope import ApiError, make_validation_error
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.sagemaker.endpoints.serving_instance import Instance
from trainyard.emulator.sagemaker.jobs.job import Job, JobServices
from trainyard.emulator.sagemaker.jobs.transfers import (
    ClientFault,
    Source,
    select_node_share,
    select_objects,
    split_uri,
)
from trainyard.emulator.sagemaker.transform.object_transform import (
    STRATEGIES,
    DataProcessing,
    ObjectFailed,
    Transformer,
    TransformStopError,
    resolve_settings,
)

VARIABLES = {
    "MaxPayloadInMB": "SAGEMAKER_MAX_PAYLOAD_IN_MB",
    "BatchStrategy": "SAGEMAKER_BATCH_STRATEGY",
    "MaxConcurrentTransforms": "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS",
}
"""Mapping of a member of the request to the environment variable that passes it to the container,
if the request has the member.
"""
AT_ONCE = 100  # maximum of MaxConcurrentTransforms * MaxPayloadInMB: CreateTransformJob's docs


class TransformJob(Job):
    """A transform job; see :class:`Job`. Creating it raises ApiError if the request cannot be run
    here.
    """

    KIND: ClassVar[str] = "Transform"
    RESOURCE: ClassVar[str] = "transform-job"
    MESSAGE: ClassVar[str] = "/opt/ml/output/message"

    def __init__(self, job_services: JobServices, request: dict) -> None:
        for check in self.iter_checks(request, job_services.python):
            check()
        self._model = job_services.models.describe(request["ModelName"])
        self._containers = job_services.models.list_containers(request["ModelName"])
        if any(container.has_models for container in self._containers):
            name = request["ModelName"]
            raise make_validation_error(
                f"model {name} is a multi-model container, which Batch Transform does not support"
            )
        self._instances: list[Instance] = []
        self._failures: list[str] = []
        super().__init__(job_services, request)

    @staticmethod
    def iter_checks(request: dict, python: Path) -> Iterator[Check]:
        source = request["TransformInput"]
        yield partial(_refuse_data_type, source)
        yield partial(_refuse_split, source)
        yield partial(_refuse_capture, request)
        yield partial(_refuse_payload, request)
        yield partial(_check_s3_locations, request)

    @property
    def role(self) -> str:
        """ARN of the role of the job's model."""
        return self._model.get("ExecutionRoleArn", "")

    @property
    def work(self) -> dict:
        return {"Model": self._model, "Transform": self.request}

    @property
    def is_isolated(self) -> bool:
        """Whether the job's model sets EnableNetworkIsolation."""
        return bool(self._model.get("EnableNetworkIsolation"))

    def count_instances(self) -> int:
        return self.request["TransformResources"]["InstanceCount"]

    def stop(self, grace: float | None = None, unheard: float | None = None) -> None:
        """Stop immediately: a transform job's containers have nothing to save."""
        super().stop(grace, unheard)
        with self.lock:
            instances = list(self._instances)
        for instance in instances:
            # In threads, because stopping an instance blocks until its processes have ended.
            threading.Thread(target=instance.stop, daemon=True).start()

    def _run_phases(self, nodes: list[Node], hosts: list[str], access: Access | None) -> None:
        """Transform the objects, with one instance per host. Replaces the phases of the other
        kinds.
        """
        source = self.request["TransformInput"]["DataSource"]["S3DataSource"]
        sources = select_objects(
            self.job_services.objects, source["S3Uri"], source["S3DataType"], self.role
        )
        self._open_log(hosts, choose_isolation().notice)
        shares = [select_node_share(sources, number, len(hosts)) for number in range(len(hosts))]
        with self.lock:
            self._check_stop()
            self._instances = [self._make_instance(host, access) for host in hosts[: len(sources)]]
            self.record["TransformStartTime"] = time.time()
            self.save()
        if len(hosts) > len(sources):
            self.write_notice(
                hosts[0], f"{len(sources)} instances run: the input has only that many objects."
            )
        try:
            with ThreadPoolExecutor(len(self._instances)) as pool:
                list(pool.map(self._serve, hosts, self._instances, shares))
        finally:
            for instance in self._instances:
                instance.stop()
        self._check_stop()
        if not self._failures:
            return self._finish("Completed")
        kind, _, reason = self._failures[0].partition(": ")
        failure_count = f"{len(self._failures)} of {len(sources)} objects failed"
        self._finish("Failed", f"{kind}: {failure_count}, the others succeeded: {reason}")

    def _make_instance(self, host: str, access: Access | None) -> Instance:
        """Return an instance of the model's containers with the job's environment variables."""
        variables = {VARIABLES[k]: self.request[k] for k in VARIABLES if k in self.request}
        more = {name: STRATEGIES.get(str(value), str(value)) for name, value in variables.items()}
        environment = {**self.request.get("Environment", {}), "SAGEMAKER_BATCH": "true", **more}

        def record_line(container: str, text: str) -> None:
            self._receive_line(host, text)

        grant, folder = contextlib.nullcontext(access), self.directory / host
        return Instance(
            self.job_services, folder, self._containers, record_line, grant, environment
        )

    def _serve(self, host: str, instance: Instance, sources: list[Source]) -> None:
        """Transform the objects of one instance, with at most MaxConcurrentTransforms at the same
        time.
        """
        instance.start()
        instance.wait()
        self._check_stop()
        if instance.status != "Ready":
            with self.lock:
                self._failures += [f"AlgorithmError: {instance.failure}"] * len(sources)
            return
        transform_settings = resolve_settings(self.request, _fetch_execution_parameters(instance))
        self._write_data_log(host, transform_settings.log_text)
        # Two pools, because readers wait for senders: in one pool they could take all threads.
        with (
            ThreadPoolExecutor(transform_settings.concurrent) as senders,
            ThreadPoolExecutor(transform_settings.concurrent) as readers,
        ):
            transformer = Transformer(
                self.job_services.objects,
                instance,
                self.request,
                transform_settings,
                senders,
                self._stop,
            )
            list(
                readers.map(
                    lambda source: self._transform_object(host, transformer, source), sources
                )
            )

    def _transform_object(self, host: str, transformer: Transformer, source: Source) -> None:
        """Transform one object, and record its output or why it failed."""
        if self._stop.is_set():
            return
        name = f"{source.bucket}/{source.key}"
        try:
            transformer.transform(source)
        except TransformStopError:
            return
        except ObjectFailed as failure:
            self._write_data_log(host, f"{name}: {failure}")
            reason = str(failure).replace(": ", f": s3://{name}: ", 1)
            with self.lock:
                self._failures.append(reason)
            return
        except ApiError as error:  # the object was deleted, or the output's bucket does not exist
            with self.lock:
                self._failures.append(f"{error.fault}: s3://{name}: {error.message}")
            return
        with self.lock:
            self.outputs.append(transformer.build_output_uri(source))

    def _write_data_log(self, host: str, text: str) -> None:
        """Write a line to the data log, which AWS has in addition to the container's log."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime())
        group, stream = "/aws/sagemaker/TransformJobs", f"{self.name}/{host}-{self._epoch}/data-log"
        if self.logs:
            self.job_services.logs.append(group, stream, (f"{now}:[sagemaker logs]: {text}",))


def _fetch_execution_parameters(instance: Instance) -> dict:
    """Return the container's response to GET /execution-parameters. Return {} if it has none."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        answer = instance.send_request("GET", "/execution-parameters", b"", {}, 5)
        document = json.loads(answer.body) if answer.status == 200 else {}
        return document if isinstance(document, dict) else {}
    return {}


def _refuse_data_type(source: dict) -> None:
    kind = source["DataSource"]["S3DataSource"]["S3DataType"]
    if kind not in ("S3Prefix", "ManifestFile"):
        raise make_validation_error(
            f"S3DataType {kind} is not supported here: use S3Prefix or ManifestFile"
        )


def _refuse_split(source: dict) -> None:
    if source.get("SplitType") in ("RecordIO", "TFRecord"):
        raise make_validation_error(
            f"SplitType {source['SplitType']} is not supported here: use Line or None"
        )


def _refuse_capture(request: dict) -> None:
    if "DataCaptureConfig" in request:
        raise make_validation_error(
            "DataCaptureConfig of a transform job is not supported here: leave it out"
        )


def _refuse_payload(request: dict) -> None:
    payload, many = request.get("MaxPayloadInMB", 6), request.get("MaxConcurrentTransforms", 1)
    if payload > AT_ONCE or payload * many > AT_ONCE:
        raise make_validation_error(
            f"MaxConcurrentTransforms {many} * MaxPayloadInMB {payload} is more than {AT_ONCE} MB"
        )


def _check_s3_locations(request: dict) -> None:
    """Raise ``ValidationException`` if an S3 URI or the DataProcessing is not valid."""
    source, output = request["TransformInput"], request["TransformOutput"]
    try:
        split_uri(source["DataSource"]["S3DataSource"]["S3Uri"])
        split_uri(output["S3OutputPath"])
        DataProcessing(request.get("DataProcessing", {}), source, output)
    except (ClientFault, ValueError) as error:
        raise make_validation_error(str(error)) from None
