"""/metrics of a real training, while it trains; absent if the recipe does not ask for it."""

import re
import urllib.error
import urllib.request

import pytest

from tests.training.worlds import free_port
from training.watching import trackers
from training.watching.trackers import MetricsPage
from trainyard.common.errors import TrainingError
from trainyard.common.measures import OF_TRAINING
from trainyard.dashboards import grafana_dashboard


@pytest.fixture(scope="module")
def spoken() -> str:
    """Return the page of a history with all metrics, as its server sends it."""
    page = MetricsPage(0)
    every = {source.key: 0.5 for m in OF_TRAINING for source in m.sources}
    page.begin(0, [{"step": 1, "watch.data_bottleneck": 0.1}, every, {"step": 7, "loss": 2.5}])
    try:
        with urllib.request.urlopen("http://{}:{}/metrics".format(*page.address)) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen("http://{}:{}/".format(*page.address))
        assert page.address[0] == "127.0.0.1"
    finally:
        page.close(failed=False)
    return text


def test_the_last_line_is_said_in_base_units(spoken):
    assert "\ntrainyard_train_step 7.0\n" in spoken and "\ntrainyard_train_loss 2.5\n" in spoken
    assert "\ntrainyard_train_memory_bytes 500000.0\n" in spoken
    assert '\ntrainyard_train_part_seconds{part="data"} 0.5\n' in spoken
    assert '\ntrainyard_train_watch_findings_total{rule="data_bottleneck"} 2.0\n' in spoken


def test_grafanas_dashboard_asks_for_what_is_there(spoken):
    given = set(re.findall(r"^(trainyard_\w+)", spoken, re.MULTILINE))
    wanted = {
        n
        for e in grafana_dashboard.expressions(grafana_dashboard.dashboard())
        for n in grafana_dashboard.named(e)
    }
    assert {name for name in wanted if name.startswith("trainyard_train_")} == given


def test_a_training_serves_its_metrics_where_it_is_asked_to(root, train, monkeypatch):
    seen, port = [], free_port()
    log = MetricsPage.log

    def looked(self, metrics):
        log(self, metrics)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            seen.append(answer.read().decode())

    monkeypatch.setattr(MetricsPage, "log", looked)
    train(root, metrics_port=port)
    assert "trainyard_train_step 10.0" in seen[-1] and "trainyard_train_validation_loss" in seen[-1]
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


def test_a_port_in_use_is_told_with_the_setting():
    first = MetricsPage(0)
    first.begin(0, [])
    try:
        with pytest.raises(TrainingError, match="metrics_port.*choose another port"):
            MetricsPage(first.address[1]).begin(0, [])
    finally:
        first.close(failed=False)


def test_without_the_setting_nothing_is_served():
    from tests.training.watching.test_trackers import CONFIG

    assert not any(isinstance(one, MetricsPage) for one in trackers.trackers(CONFIG, None, "n", {}))
