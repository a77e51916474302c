"""Check identifiers that botocore's patterns accept and AWS refuses: KMS keys, images, S3 locations
and queue URLs.
"""

import re
from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import Document, Step
from trainyard.validate.rules.job_view import iter_strings, join_member, to_known_text
from trainyard.validate.rules.rule import Violation, rule, select_document, select_steps
from trainyard.validate.rules.s3_locations import S3_FIELDS

KEY_ARN = re.compile(
    r"arn:aws[a-z-]*:kms:[a-z]{2}(-[a-z]+)+-\d+:\d{12}:(key/[a-zA-Z0-9-]+|alias/[a-zA-Z0-9:/_-]+)"
)
IMAGES = ("TrainingImage", "ImageUri", "Image")
QUEUE = re.compile(r"https://[a-z0-9.-]+/\d{12}/[A-Za-z0-9_-]{1,80}(\.fifo)?")


def _iter_argument_strings(document: Document) -> Iterator[tuple[Step, str, str]]:
    """Iterate over every string in the steps' arguments as (step, path, text).

    Parameters have their default values.
    """
    for step in document.steps:
        arguments: Any = document.resolve_value(step.own_arguments)
        for path, text in iter_strings(arguments, f"{step.path}.Arguments"):
            yield step, path, text


@rule(
    "error",
    select=select_document,
    reason="KMS has no such key: the job fails before it starts, or when it writes its outputs",
    fix="write arn:aws:kms:<region>:<account>:key/<id>, the key's id, or alias/<name>",
    source="KMS developer guide, Key identifiers (KeyId)",
)
def malformed_key_arn(document: Document) -> Iterator[Violation]:
    for step, path, text in _iter_argument_strings(document):
        is_key = path.endswith(("KmsKeyId", "KmsKey")) and ":" in text
        if is_key and not KEY_ARN.fullmatch(text):
            yield Violation(step=step, path=path, problem=f"{text!r} is not an ARN of a KMS key")


@rule(
    "error",
    select=select_document,
    reason="white space counts as part of the name: no such image or object is found",
    fix="remove the white space",
    source="ECR user guide, repository names; S3 user guide, object keys: a key is taken as it is",
)
def stray_white_space(document: Document) -> Iterator[Violation]:
    for step, path, text in _iter_argument_strings(document):
        image, location = (
            path.endswith(_list_suffixes(IMAGES)),
            path.endswith(_list_suffixes(S3_FIELDS)),
        )
        if (image and re.search(r"\s", text)) or (location and text != text.strip()):
            yield Violation(step=step, path=path, problem=f"{text!r} contains white space")


def _list_suffixes(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(join_member("", name) for name in names)


@rule(
    "error",
    select=select_steps,
    reason="the message whose answer the step waits for is never sent",
    fix="write the queue's URL: https://sqs.<region>.amazonaws.com/<account>/<queue>",
    source="developer guide, pipelines Callback step; SQS developer guide, queue URLs",
)
def no_queue_url(step: Step) -> Iterator[Violation]:
    text = to_known_text(step.document.get("SqsQueueUrl"))
    if text is not None and not QUEUE.fullmatch(text):
        yield Violation(
            step=step, path=f"{step.path}.SqsQueueUrl", problem=f"{text!r} is not a queue's URL"
        )
