"""A function's versions: what it was when each was published."""

from trainyard.emulator.functions.code import invalid

_OWN = ("Version", "FunctionArn", "Description", "LastModified", "RevisionId")
"""What two versions of the same code and settings may differ in."""


def publish(record: dict, request: dict) -> dict:
    """A new version's configuration; the last one's when nothing has changed since, as on AWS.

    Raises ``InvalidParameterValueException`` when the code is not the one that the request names.
    """
    now, versions = record["configuration"], record.setdefault("versions", [])
    if request.get("CodeSha256", now["CodeSha256"]) != now["CodeSha256"]:
        message = f"CodeSHA256 ({request['CodeSha256']}) is different from current CodeSHA256 in"
        raise invalid(f"{message} $LATEST ({now['CodeSha256']}). Please try again.")
    last = versions[-1]["configuration"] if versions else None
    if last is None or any(last.get(k) != v for k, v in now.items() if k not in _OWN):
        number = str(int(last["Version"]) + 1 if last else 1)
        said = {"Description": request.get("Description", now["Description"])}
        arn = f"{now['FunctionArn']}:{number}"
        made = {**now, **said, "Version": number, "FunctionArn": arn}
        versions.append({"configuration": made, "code": record["code"]})
    return versions[-1]["configuration"]


def find(record: dict, number: str) -> dict | None:
    """The version with that number, as a record; None where there is none."""
    for version in record.get("versions", []):
        if version["configuration"]["Version"] == number:
            return version | {"tags": record["tags"]}
    return None


def listed(record: dict) -> list[dict]:
    """``$LATEST`` and every version."""
    latest = record["configuration"]
    latest = latest | {"FunctionArn": f"{latest['FunctionArn']}:$LATEST"}
    return [latest, *(version["configuration"] for version in record.get("versions", []))]
