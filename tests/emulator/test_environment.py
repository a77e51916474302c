"""What a client process gets in its environment, and what it must not keep."""

import json
from pathlib import Path

from emulator.environment import environment, foreign


def test_the_sdks_defaults_turn_telemetry_off(tmp_path: Path):
    values = environment("http://127.0.0.1:1", tmp_path)
    config = json.loads(Path(values["SAGEMAKER_ADMIN_CONFIG_OVERRIDE"]).read_text())
    assert config["SageMaker"]["PythonSDK"]["Modules"]["TelemetryOptOut"] is True


def test_the_loopback_goes_round_a_proxy_beside_what_already_did(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "intranet.example")
    values = environment("http://127.0.0.1:1", tmp_path)
    assert values["NO_PROXY"] == "intranet.example,127.0.0.1,localhost"


def test_real_credentials_and_endpoints_are_foreign_and_harmless_settings_are_not(tmp_path: Path):
    ours = environment("http://127.0.0.1:1", tmp_path)
    real = ["AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_SESSION_TOKEN"]
    outer = dict.fromkeys([*real, "AWS_ACCESS_KEY_ID", "AWS_CA_BUNDLE", "AWS_PAGER", "HOME"], "x")
    assert foreign(outer, ours) == real
