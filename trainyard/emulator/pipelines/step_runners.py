"""The runners of all step types, found by a step's type or by the Metadata that it left."""

from typing import Any

from trainyard.emulator.authorization.authority import Authority
from trainyard.emulator.experiments import Experiments
from trainyard.emulator.pipelines.steps import RUNNERS, Runner, Services
from trainyard.language.step_types import STEP_TYPES


class Work:
    """Runs and describes the work of steps. Its methods are thread-safe.

    ``metadata`` are empty until a step created something.
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

    def runner(self, step_type: str) -> Runner:
        return self._runners[step_type]

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        [(key, metadata_value)] = metadata.items()
        return self._by_key[key].describe(metadata_value)

    def outputs(self, metadata: dict[str, Any]) -> list[str]:
        return [uri for key, body in metadata.items() for uri in self._by_key[key].outputs(body)]

    def stop(self, metadata: dict[str, Any]) -> None:
        for key, metadata_value in metadata.items():
            self._by_key[key].stop(metadata_value)
