"""A function's policy: who may call it, by AddPermission. It is kept and shown; nothing is checked,
as no IAM policy is here."""

import json

from trainyard.emulator.api import ApiError


def statement(request: dict, function: str) -> dict:
    """The policy's statement that an AddPermission request asks for."""
    principal = request["Principal"]
    made = {
        "Sid": request["StatementId"],
        "Effect": "Allow",
        "Principal": {"Service": principal} if "." in principal else {"AWS": principal},
        "Action": request["Action"],
        "Resource": function,
    }
    conditions = {}
    if "SourceArn" in request:
        conditions["ArnLike"] = {"AWS:SourceArn": request["SourceArn"]}
    equal = {"AWS:SourceAccount": "SourceAccount", "aws:PrincipalOrgID": "PrincipalOrgID"}
    if equals := {name: request[key] for name, key in equal.items() if key in request}:
        conditions["StringEquals"] = equals
    return made | ({"Condition": conditions} if conditions else {})


def added(statements: list[dict], new: dict) -> list[dict]:
    """Raises ``ResourceConflictException`` where a statement has that Sid."""
    if any(each["Sid"] == new["Sid"] for each in statements):
        message = f"The statement id ({new['Sid']}) provided already exists. Please provide a new"
        message += " statement id, or remove the existing statement."
        raise ApiError("ResourceConflictException", message, 409)
    return [*statements, new]


def removed(statements: list[dict], sid: str) -> list[dict]:
    """Raises ``ResourceNotFoundException`` where there is no such statement."""
    kept = [each for each in statements if each["Sid"] != sid]
    if len(kept) == len(statements):
        message = f"Statement {sid} is not found in resource policy."
        if not statements:
            message = "No policy is associated with the given resource."
        raise ApiError("ResourceNotFoundException", message, 404)
    return kept


def shown(statements: list[dict]) -> str:
    """GetPolicy's document. Raises ``ResourceNotFoundException`` where there is none."""
    if not statements:
        message = "The resource you requested does not exist."
        raise ApiError("ResourceNotFoundException", message, 404)
    return json.dumps({"Version": "2012-10-17", "Id": "default", "Statement": statements})
