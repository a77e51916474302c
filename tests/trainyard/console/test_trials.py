"""Training jobs of a tuning job, each with its log."""

import html
import re
from collections.abc import Iterator

import pytest

from tests.trainyard.emulator.harness import Cloud
from tests.trainyard.emulator.sagemaker.tuning.harness import config, request, step, tuning_cloud
from trainyard.emulator.client_environment import apply_environment


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("tuning")
    with (
        tuning_cloud(folder / "aws", folder / "images") as running,
        apply_environment(running.endpoint.env),
    ):
        yield running


def test_each_training_of_a_tuning_has_its_log(cloud: Cloud, client):
    cloud.create("tunes", [step("Tune", request(config(jobs=2)))])
    ended, _ = cloud.run("tunes")
    assert ended["PipelineExecutionStatus"] == "Succeeded"
    address = f"/runs/tunes/{ended['PipelineExecutionArn'].rpartition('/')[2]}/Tune"
    page = client.get(address).text
    links = [html.unescape(one) for one in re.findall(r'href="([^"]+/log\?job=[^"]+)"', page)]
    assert len(links) == 2
    values = re.findall(r'<td class="n">(\d)</td>\s*<td class="n">(\d)</td>', page)
    assert values and all(value == x for value, x in values)  # the loss is the hyperparameter
    for link, (value, _) in zip(links, values, strict=True):
        log = client.get(link).text
        assert f"loss={value};" in log and log.count("<option value=") == 2
    assert client.get(f"{address}/log").status_code == 200
