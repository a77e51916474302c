"""The data of scripts of one's own: folders in S3, named by the bytes that the jobs found there.

No shard step has made them, so there are no manifests. The evaluation says what the script was
tested on, and the artifact's trainyard.json what it was trained on.
"""

import json
from collections.abc import Mapping
from typing import Any

from pipelines.verify.checks import SHOWN, Unchecked, same
from pipelines.verify.evidence import Evidence
from pipelines.verify.training import DESCRIPTION
from trainyard.common.hashes import json_sha256

TRAIN = "train"
"""The evaluation's channel that nothing is tested on (``steps.evaluate_script.job``)."""


def scripted(evidence: Evidence) -> bool:
    """Whether a script of the user's own was scored."""
    return "channels" in evidence.json(evidence.source("Statistics")["S3Uri"]).get("dataset", {})


def tested(evidence: Evidence, *, deep: bool) -> str:
    """What the model was tested on lies there; ``deep``: every byte of it."""
    told = evidence.json(evidence.source("Statistics")["S3Uri"])["dataset"]["channels"]
    told = {name: channel for name, channel in told.items() if name != TRAIN}
    uris = {name: source["S3Uri"] for name, source in evidence.job_inputs("Evaluate").items()}
    return _checked(evidence, "test", told, uris, deep)


def trained(evidence: Evidence, *, deep: bool) -> str:
    """What the model was trained on lies there; ``deep``: every byte of it."""
    body = evidence.model_file(DESCRIPTION)
    given = evidence.job("Train").get("InputDataConfig", ())
    sources = {channel["ChannelName"]: channel["DataSource"] for channel in given}
    uris = {
        name: source["S3DataSource"]["S3Uri"]
        for name, source in sources.items()
        if "S3DataSource" in source
    }
    return _checked(evidence, "train", json.loads(body)["channels"], uris, deep)


def _checked(
    evidence: Evidence,
    split: str,
    told: Mapping[str, Mapping[str, Any]],
    uris: Mapping[str, str],
    deep: bool,
) -> str:
    named = json_sha256({name: channel["sha256"] for name, channel in told.items()})
    same(f"fingerprint of the {split} data", named,
         evidence.provenance.get(f"{split}_fingerprint"), "provenance.json")  # fmt: skip
    if missing := sorted(told.keys() - uris.keys()):
        raise Unchecked(f"channel {missing[0]} came from no prefix in S3")
    files = 0
    for name, channel in told.items():
        files += _check_channel(evidence, f"channel {name}", uris[name], channel, deep)
    return f"{named[:SHOWN]}, {files} files" + (", every byte" if deep else "")


def _check_channel(
    evidence: Evidence, what: str, uri: str, told: Mapping[str, Any], deep: bool
) -> int:
    there = evidence.input_objects(uri)
    same(f"number of files of {what} ({uri})", len(there), told["files"], "its job")
    same(f"bytes of {what} ({uri})", sum(size for _, size in there.values()), told["bytes"],
         "its job")  # fmt: skip
    read = told.get("contents", True)  # what was streamed is known by name and size alone
    if deep or not read:
        contents = {
            name: [size, evidence.sha256(where)] if read else [size]
            for name, (where, size) in there.items()
        }
        same(f"SHA-256 of {what} ({uri})", json_sha256(contents), told["sha256"], "its job")
    return len(there)
