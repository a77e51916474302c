"""The runners of all step types: each step's by its type, or by the Metadata that it left."""

from typing import Any

from trainyard.emulator.experiments import Experiments
from trainyard.emulator.pipelines.steps import RUNNERS, Runner, Services
from trainyard.language.step_types import STEP_TYPES


class Work:
    """Every method may be called from any thread. ``metadata`` are empty until a step made
    something.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runners = {name: make(services, name) for name, make in RUNNERS.items()}
        self._by_key = {STEP_TYPES[name].metadata_key: r for name, r in self._runners.items()}

    @property
    def experiments(self) -> Experiments:
        return self._services.experiments

    def runner(self, step_type: str) -> Runner:
        return self._runners[step_type]

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        [(key, made)] = metadata.items()
        return self._by_key[key].describe(made)

    def outputs(self, metadata: dict[str, Any]) -> list[str]:
        return [uri for key, made in metadata.items() for uri in self._by_key[key].outputs(made)]

    def stop(self, metadata: dict[str, Any]) -> None:
        for key, made in metadata.items():
            self._by_key[key].stop(made)
