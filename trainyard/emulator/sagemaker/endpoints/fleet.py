"""A fleet: all processes that serve one endpoint configuration, one for each variant."""

import contextlib
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainyard.emulator.client_environment import grant_access
from trainyard.emulator.iam.authority import held_objects
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.endpoints.serving_instance import ANSWER, Instance
from trainyard.emulator.sagemaker.jobs.job import Place


class Turns:
    """Smooth weighted round robin: at any time every name is within one request of its share.

    AWS draws at random with the same weights.
    """

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def next(self, weights: Mapping[str, float]) -> str:
        """Return a name, in proportion to its weight; never one with weight 0.

        Raises:
            ValueError: no weight is above 0.
        """
        positive_weights = {name: weight for name, weight in weights.items() if weight > 0}
        if not positive_weights:
            raise ValueError("no weight is above 0")
        total = sum(positive_weights.values())
        self._credit = {
            name: self._credit.get(name, 0.0) + weight / total
            for name, weight in positive_weights.items()
        }
        choice = max(self._credit, key=lambda name: self._credit[name])
        self._credit[choice] -= 1.0
        return choice


class Variant:
    """A production variant: one process replaces all its instances."""

    def __init__(self, place: Place, endpoint: str, folder: Path, spec: dict) -> None:
        self.spec, self.name = spec, spec["VariantName"]
        self.weight = self.wanted_weight = float(spec.get("InitialVariantWeight", 1.0))
        self.count = int(spec.get("InitialInstanceCount", 1))
        model = place.models.describe(spec["ModelName"])
        self.containers = place.models.containers(spec["ModelName"])
        self._logs, self._group = place.logs, f"/aws/sagemaker/Endpoints/{endpoint}"
        self._stream = f"{self.name}/i-{uuid.uuid4().hex[:17]}"
        is_isolated = bool(model.get("EnableNetworkIsolation"))
        role = model.get("ExecutionRoleArn", "")
        grant = grant_access(place.aws, role, is_isolated)
        place = replace(place, objects=held_objects(place.aws.authority, role))
        self.instance = Instance(place, folder / self.name, self.containers, self._line, grant)
        self.start_time = time.time()

    def start(self) -> None:
        if self.count > 1:
            self._line("", f"[emulator] One process replaces {self.count} instances.")
        self.instance.start()

    def describe(self) -> dict:
        """Return the ProductionVariantSummary."""
        images = [
            {
                "SpecifiedImage": container.image,
                "ResolvedImage": container.resolved_image,
                "ResolutionTime": self.start_time,
            }
            for container in self.containers
        ]
        return {
            "VariantName": self.name,
            "DeployedImages": images,
            "CurrentWeight": self.weight,
            "DesiredWeight": self.wanted_weight,
            "CurrentInstanceCount": self.count,
            "DesiredInstanceCount": self.count,
        }

    def _line(self, host: str, line: str) -> None:
        stream = self._stream if len(self.containers) == 1 else f"{self._stream}/{host}"
        if line:  # CloudWatch Logs takes no empty message
            self._logs.append(self._group, stream, (line,))


class Fleet:
    """The variants of a configuration. Its methods are thread-safe."""

    def __init__(self, place: Place, endpoint: str, config: dict) -> None:
        """Create the fleet. ``config``: DescribeEndpointConfig's answer."""
        self.config = config
        self._folder = place.jobs.parent / "endpoints" / endpoint / uuid.uuid4().hex[:8]
        specs = config["ProductionVariants"]
        variants = [Variant(place, endpoint, self._folder, spec) for spec in specs]
        self.variants = {variant.name: variant for variant in variants}
        self._turns, self._lock, self._busy = Turns(), threading.Condition(), 0

    @property
    def name(self) -> str:
        return self.config["EndpointConfigName"]

    @property
    def failure(self) -> str:
        """Why a variant does not serve; empty while all variants serve or start."""
        failures = [v for v in self.variants.values() if v.instance.status == "Failed"]
        return "; ".join(f"variant {v.name}: {v.instance.failure}" for v in failures)

    def start(self) -> None:
        for variant in self.variants.values():
            variant.start()

    def wait(self) -> None:
        """Return when each variant is ready or has failed."""
        for variant in self.variants.values():
            variant.instance.wait()

    @contextmanager
    def serving(self, target: str | None) -> Iterator[Variant]:
        """Yield the variant for a request, or the one named ``target``; :meth:`drain` waits for its
        end.
        """
        with self._lock:
            variant = self._choose(target)
            self._busy += 1
        try:
            yield variant
        finally:
            with self._lock:
                self._busy -= 1
                self._lock.notify_all()

    def weigh(self, weights: dict[str, float]) -> None:
        with self._lock:
            for name, weight in weights.items():
                self.variants[name].weight = self.variants[name].wanted_weight = weight

    def drain(self) -> None:
        """Return when no request is running; new requests must be prevented meanwhile."""
        with self._lock:
            # A request takes at most ANSWER seconds.
            self._lock.wait_for(lambda: not self._busy, ANSWER)

    def stop(self) -> None:
        """Stop the fleet; return when none of its processes is left."""
        for variant in self.variants.values():
            variant.instance.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another fleet of the endpoint uses the folder
            self._folder.parent.rmdir()

    def _choose(self, target: str | None) -> Variant:
        if target is None:
            weights = {variant.name: variant.weight for variant in self.variants.values()}
            return self.variants[self._turns.next(weights)]
        if target not in self.variants:
            names = ", ".join(self.variants)
            message = f"Variant {target!r} is not one of this endpoint's: {names}"
            raise ApiError("ValidationError", message)
        return self.variants[target]
