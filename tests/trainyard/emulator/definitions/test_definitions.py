"""Random definitions end as their steps explain, and the oracle sees what is not explained."""

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.trainyard.emulator.definitions import oracle
from tests.trainyard.emulator.definitions.generate import definitions
from tests.trainyard.emulator.definitions.service import Service, prepare
from tests.trainyard.emulator.test_lambda_ import lambda_step
from trainyard.emulator.server import serve_emulator

pytestmark = pytest.mark.sweep


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
def test_random_definitions_end_as_their_steps_say(seed: int, tmp_path: Path) -> None:
    """Twenty of a seed, four at a time; of every other seed some have jobs."""
    with serve_emulator(tmp_path) as endpoint:
        service = Service(endpoint.env)
        queue = prepare(service)

        def faults(number: int, definition: dict) -> list[str]:
            written = service.create(f"random-{number}", definition, queue)
            arn = service.start(f"random-{number}")
            return oracle.faults(written, service.wait_for_execution(arn), service.steps(arn))

        drawn = definitions(20, seed, processing=bool(seed % 2))
        with service.answering(queue), ThreadPoolExecutor(4) as pool:
            found = list(pool.map(faults, range(len(drawn)), drawn))
    assert len(found) == 20 and not any(found), found


@pytest.fixture(scope="module")
def ended_chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict, list[dict]]:
    """A chain of two steps that succeeded: definition, answer, listing."""
    inputs = {"A": 1, "B": {"Get": "Steps.A.OutputParameters['y']"}}
    steps = [
        lambda_step(n, "random", {"x": x, "how": "add"}, y="Integer") for n, x in inputs.items()
    ]
    definition = {"Version": "2020-12-01", "Parameters": [], "Steps": steps}
    with serve_emulator(tmp_path_factory.mktemp("aws")) as endpoint:
        service = Service(endpoint.env)
        service.create("chain", definition, prepare(service))
        arn = service.start("chain")
        return definition, service.wait_for_execution(arn), service.steps(arn)


def spoil(what: str, answer: dict, listing: list[dict]) -> None:
    first, second = listing
    if what == "value":
        second["Metadata"]["Lambda"]["OutputParameters"][0]["Value"] = "9"
    elif what == "status":
        answer["PipelineExecutionStatus"] = "Failed"
    elif what == "not run":
        listing.remove(second)
    elif what == "ran although":
        first["StepStatus"] = "Failed"
    else:
        second["StepName"] = "C"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("value", 'B: does not say \'"Value": "3"\''),
        ("status", "the execution is Failed, and Succeeded is explained"),
        ("not run", "B: did not run, and nothing explains it"),
        ("ran although", "B: ran, although A is Failed, not Completed"),
        ("another", "C is no step of it"),
    ],
)
def test_the_oracle_sees_what_is_not_explained(ended_chain: tuple, what: str, said: str) -> None:
    definition, answer, listing = copy.deepcopy(ended_chain)
    assert not oracle.faults(definition, answer, listing)
    spoil(what, answer, listing)
    assert any(said in fault for fault in oracle.faults(definition, answer, listing))
