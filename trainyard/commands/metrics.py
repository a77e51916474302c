"""Print configurations for Prometheus, Grafana and CloudWatch on standard output.

trainyard metrics grafana       a dashboard's JSON, over the series of /metrics
trainyard metrics cloudwatch    dashboard and alarms of a pipeline, a CloudFormation template
trainyard metrics scrape        Prometheus' scrape_configs for the emulator at AWS_ENDPOINT_URL
trainyard metrics token         only the token that GET /metrics there asks for
"""

import json
import os
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

import typer

from trainyard import dashboards
from trainyard.common.errors import ServiceError
from trainyard.emulator.cloudwatch.metric_store import derive_scrape_token

HOSTS = ("127.0.0.1", "localhost")


def main(
    what: Annotated[str, typer.Argument(help="grafana, cloudwatch, scrape or token.")],
) -> None:
    """Print configurations for Prometheus, Grafana and CloudWatch: dashboards, alarms,
    scrape_configs.
    """
    if what not in OUTPUTS:
        raise ServiceError(f"trainyard metrics {what}: expected one of {', '.join(OUTPUTS)}")
    typer.echo(OUTPUTS[what]())


def _find_emulator_token() -> str:
    return derive_scrape_token(_find_emulator()[1])


def _find_emulator() -> tuple[str, str]:
    """Return (host and port, secret access key) of the emulator that the environment names.

    Raises:
        ServiceError: the environment does not point at an emulator on this machine.
    """
    address = urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if address.hostname not in HOSTS or not secret:
        raise ServiceError(
            "AWS_ENDPOINT_URL: names no emulator on this machine; run the lines that trainyard "
            "emulator prints in this shell"
        )
    return address.netloc, secret


def _render_scrape_config() -> str:
    """Return scrape_configs as JSON, which is also valid YAML."""
    job = {
        "job_name": "trainyard",
        "metrics_path": "/metrics",
        "authorization": {"type": "Bearer", "credentials": _find_emulator_token()},
        "static_configs": [{"targets": [_find_emulator()[0]]}],
    }
    return json.dumps({"scrape_configs": [job]}, indent=2)


OUTPUTS: dict[str, Callable[[], str]] = {
    "grafana": lambda: json.dumps(dashboards.build_grafana_dashboard(), indent=2),
    "cloudwatch": lambda: json.dumps(dashboards.build_cloudwatch_template(), indent=2),
    "scrape": _render_scrape_config,
    "token": _find_emulator_token,
}
