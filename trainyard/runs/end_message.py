"""When an execution has ended, send a message with its status and causes to SNS and to Slack.

``announce`` is the handler of a Lambda function that EventBridge calls (infra/messages.yaml). It
needs boto3, which Lambda's Python runtime includes, and the few modules that ``python -m
trainyard.runs.end_message FILE.zip`` packs.

The function's environment variables are ``TOPIC_ARN``, the SNS topic; ``SLACK_SECRET_ARN``, a
secret of Secrets Manager with the URL of a Slack incoming webhook; and ``CONSOLE_URL``, the
console's URL. The last two may be empty.
"""

import io
import json
import os
import sys
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

from trainyard.aws_clients import create_client, service_errors
from trainyard.common import atomic_file
from trainyard.common.errors import ServiceError
from trainyard.runs.execution import Execution
from trainyard.runs.why.read_evidence import find_causes

SUBJECT = 100  # largest number of characters of an e-mail's subject (SNS's limit)
LONGEST = 3_000  # largest number of characters of a message (Slack shows no more of a text)
SECONDS = 10  # timeout for Slack's response

PARTS = (
    "common",
    "language",
    "runs/why",
    "runs/__init__.py",
    "runs/execution.py",
    "runs/run_values.py",
    "aws_clients.py",
)
"""Files and folders of the package ``trainyard`` that the function needs besides this module."""


def announce(event: Mapping[str, Any], context: object = None) -> dict[str, str]:
    """Send a message about the execution in the event to SNS and Slack; return ``{"told": text}``.

    Raises:
        ServiceError: AWS or Slack refuses or cannot be reached; Lambda then tries again.
    """
    detail = event.get("detail", {})
    arn, status = detail["pipelineExecutionArn"], detail["currentPipelineExecutionStatus"]
    text = format_message(Execution(arn), status, os.environ.get("CONSOLE_URL", ""))
    if topic := os.environ.get("TOPIC_ARN"):
        subject = text.partition("\n")[0]
        with service_errors(f"publishing to {topic}"):
            create_client("sns").publish(
                TopicArn=topic, Subject=_replace_control_characters(subject)[:SUBJECT], Message=text
            )
    if secret := os.environ.get("SLACK_SECRET_ARN"):
        with service_errors("reading the address of Slack's webhook"):
            answer = create_client("secretsmanager").get_secret_value(SecretId=secret)
        _post_text(str(answer.get("SecretString", "")).strip(), text)
    return {"told": text}


def format_message(execution: Execution, status: str, console: str = "") -> str:
    """Return the text of the message: pipeline, execution and status, the cause and fix of each
    failed step, and where to find more. ``console`` is the console's URL, or empty.
    """
    pipeline, _, run = execution.arn.rpartition(":pipeline/")[2].partition("/execution/")
    lines = [f"{pipeline}: run {run} {status}"]
    for cause in find_causes(execution) if status == "Failed" else ():
        likely = "likely: " if cause.certainty == "likely" else ""
        cause_lines = [f"{cause.step} failed: {likely}{cause.sentence}"]
        cause_lines += [f"  {line}" for line in cause.lines[:5]]
        cause_lines += [f"fix: {cause.fix}"] if cause.fix else []
        lines += map(_replace_control_characters, cause_lines)
    lines.append(f"trainyard why {execution.arn}" if status == "Failed" else execution.arn)
    if console:
        lines.append(f"{console.rstrip('/')}/runs/{pipeline}/{run}")
    return "\n".join(lines)[:LONGEST]


def _replace_control_characters(text: str) -> str:
    """Replace control characters, which a mail program or a chat might interpret."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _post_text(address: str, text: str) -> None:
    """Post the text to a URL. The URL is a secret, so no error message contains it.

    Raises:
        ServiceError: Slack refuses or cannot be reached.
    """
    # Slack requires that exactly these three characters are escaped.
    escaped_text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    request = urllib.request.Request(  # noqa: S310  # the address is the owner's secret
        address, json.dumps({"text": escaped_text}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310
            return
    except (URLError, OSError, ValueError) as error:
        # The error's own text contains the address, and so would a traceback with its cause.
        reason = getattr(error, "code", None) or type(error).__name__
        raise ServiceError(f"Slack's webhook did not accept the message: {reason}") from None


def build_function_zip() -> bytes:
    """Return the function's code as a zip archive; equal files give equal bytes."""
    house = Path(__file__).parents[1]
    paths = [house / "__init__.py", Path(__file__), *(house / part for part in PARTS)]
    suffixes = ("*.py", "*.toml", "*.json")
    files: list[Path] = []
    for path in paths:
        files += (
            [path] if path.is_file() else [f for suffix in suffixes for f in path.rglob(suffix)]
        )
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files):
            # The files' own times would change the bytes. 1980 is the earliest year in a zip.
            name = zipfile.ZipInfo(str(file.relative_to(house.parent)), (1980, 1, 1, 0, 0, 0))
            name.external_attr = 0o644 << 16
            archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return data.getvalue()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m trainyard.runs.end_message FILE.zip")
    atomic_file.write_file(Path(sys.argv[1]), build_function_zip())
