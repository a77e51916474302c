"""Where the code of a step lies, and where its data: which of its fields say so.

Code travels in a channel or an input of a name that the SDKs give it (``SourceCode`` of SDK 3's
ModelTrainer: ``code``, beside ``sm_drivers``; ``ScriptProcessor`` of both: ``code``;
``FrameworkProcessor``: the archive in ``code``, what starts it in ``entrypoint``), or as an archive
``sourcedir.tar.gz`` that the toolkits of SDK 2's frameworks download
(``sagemaker_submit_directory``), or as a file that is named like a script.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

CODE = (
    "code",
    "sm_drivers",
    "entrypoint",
    "aux",
    "sm_rf_user_ws",
    "sagemaker_remote_function_bootstrap",
    "pre_exec_script_and_dependencies",
)
"""Channels and inputs by which the SDKs pass code: sagemaker.train.constants and
sagemaker.core.processing of SDK 3.27; the last three are those of ``@step``
(sagemaker.core.remote_function.job)."""

_SOURCE = re.compile(
    r"(?:.*\.)?(?:InputDataConfig|ProcessingInputs)\[(?P<name>.+)\](?:\.\w+)*\.S3Uri"
    r"|(?:.*\.)?(?P<transform>TransformInput)(?:\.\w+)*\.S3Uri"
)
_SUBMITTED = re.compile(
    r"(?i:(?:.*\.)?(?:Static)?(?:HyperParameters|Environment)\.(sagemaker_submit_directory))"
)
BY_CONTENT = re.compile(r"s3://\S+/code/[0-9a-f]{32,64}/\S*")
"""A URI that the SDKs, and ours, name by the hash of what lies there: the same one is uploaded anew
with each definition, and is the same."""

_SCRIPT = re.compile(r"\S+\.(?:py|sh|ipynb|R|jar|tar\.gz)")
_ARCHIVE = re.compile(r"(?:.*/)?source(?:dir)?\.tar\.gz")


@dataclass(frozen=True, slots=True)
class Places:
    """The code and the data of one step: name of a channel or an input → URI in S3."""

    code: Mapping[str, str]
    data: Mapping[str, str]
    paths: frozenset[str]
    """The fields that say so."""
    manifests: frozenset[str] = frozenset()
    """Inputs of which the URI is a file that lists objects elsewhere."""


def places(uris: Mapping[str, str], kinds: Mapping[str, str] | None = None) -> Places:
    """Those among a step's ``uris``, by the field that has each; ``kinds``: its S3DataTypes."""
    code: dict[str, str] = {}
    data: dict[str, str] = {}
    paths, manifests = set(), set()
    for path, uri in uris.items():
        submitted = _SUBMITTED.fullmatch(path)
        source = None if submitted else _SOURCE.fullmatch(path)
        if submitted:
            code[submitted[1].lower()] = uri
        elif source:
            name = source["name"] or source["transform"]
            (code if _is_code(name, uri) else data)[name] = uri
            kind = (kinds or {}).get(path.removesuffix("S3Uri") + "S3DataType", "")
            if kind.endswith("ManifestFile"):
                manifests.add(name)
        else:
            continue
        paths.add(path)
    return Places(code, data, frozenset(paths), frozenset(manifests))


def _is_code(name: str, uri: str) -> bool:
    if _SCRIPT.fullmatch(uri) and not uri.endswith(".tar.gz"):
        return True
    return name in CODE or _ARCHIVE.fullmatch(uri) is not None
