"""The normal form of a definition, in which equivalent notations are replaced by one of them.

Two definitions with equal normal forms do the same work for every input. The reverse does not hold:
an equivalence that this module does not know counts as a difference.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.common.hashes import hash_json
from trainyard.language.definition_document import Step, iter_steps
from trainyard.language.expressions import (
    GET,
    JOIN,
    ExpressionError,
    Reference,
    format_join_value,
    is_expression,
    iter_known_references,
    look_up_path,
    parse_get,
)
from trainyard.language.step_types import get_step_type
from trainyard.runs.run_differences import STAMP, is_code, is_code_variable

CodeDigest = Callable[[str], str | None]
"""Function that maps the URI of code to a digest of its files; None if they are not known."""

DEFAULTS = {
    "S3DataDistributionType": "FullyReplicated",
    "CompressionType": "None",
    "RecordWrapperType": "None",
    "S3CompressionType": "None",
    "AppManaged": False,
    "EnableNetworkIsolation": False,
    "EnableInterContainerTrafficEncryption": False,
    "EnableManagedSpotTraining": False,
    "Environment": {},
    "HyperParameters": {},
    "InputDataConfig": [],
    "ProcessingInputs": [],
    "NetworkConfig": {},
}
"""Mapping of a member of a job's request to its default value (API reference)."""

STEP_DEFAULTS: dict[str, Any] = {"CacheConfig": {"Enabled": False}, "RetryPolicies": []}
OWN_NAMES = ("Environment", "HyperParameters", "StaticHyperParameters")
"""Members whose keys are chosen by the user: nothing in them is left out or sorted."""

UNORDERED_LISTS = {
    "InputDataConfig": "ChannelName",
    "ProcessingInputs": "InputName",
    "Outputs": "OutputName",
    "MetricDefinitions": "Name",
}
"""Mapping of a list whose order usually has no meaning to the member that names its items.

The order does matter if two items share a location (see ``_sort_items``)."""

COSMETIC = ("DisplayName", "Description")


@dataclass(frozen=True, slots=True)
class NormalForm:
    """The normal form of a definition."""

    top: Mapping[str, Any]
    """Members of the definition except Parameters, Steps and Metadata."""
    parameters: Mapping[str, Mapping[str, Any]]
    """Mapping of each parameter that was not replaced by a constant to its declaration."""
    steps: Mapping[str, Mapping[str, Any]]
    """Mapping of a step to its normal form, in topological order."""
    cosmetics: Mapping[str, Mapping[str, Any]]
    """Mapping of a step, or ``""`` for the definition, to members that do not change the
    work: descriptions, tags and the location of code."""


def normalize_definition(
    document: Mapping[str, Any],
    parameters: Mapping[str, Mapping[str, Any]],
    constants: Mapping[str, Any],
    digest: CodeDigest,
) -> NormalForm:
    """Return the normal form of a definition.

    Args:
        document: a valid definition.
        parameters: declarations of the parameters that stay parameters.
        constants: mapping of each other parameter to the value that replaces it.
        digest: function that returns the digest of the code at a URI.
    """
    step_list = list(iter_steps(document["Steps"]))
    before = _find_ancestors(step_list)
    folding = _Folding(constants, {step.name: step for step in step_list})
    outputs = {
        step.name: list(iter_output_uris(folding.fold(step.own_arguments)))
        if get_step_type(step.type).job
        else []
        for step in step_list
    }
    # Set only after the outputs are folded: their locations must still contain the times.
    folding.generated_names = _map_timestamped_uris(
        [uri for uris in outputs.values() for uri in uris]
    )
    # A step has more ancestors than each step that it waits for: this order is topological.
    step_list.sort(key=lambda step: len(before[step.name]))
    sorts = not any(
        _AT_INDEX.search(reference.path) for reference in iter_known_references(document["Steps"])
    )
    separate_keys = ("Parameters", "Steps", "Metadata")
    top = {k: v for k, v in document.items() if k not in separate_keys and v is not None}
    cosmetics: dict[str, dict[str, Any]] = {"": {"Metadata": document.get("Metadata") or {}}}
    steps = {}
    for step in step_list:
        cosmetics[step.name] = {k: step.document[k] for k in COSMETIC if step.document.get(k)}
        if stamped_places := [uri for uri in outputs[step.name] if uri in folding.generated_names]:
            cosmetics[step.name]["generated locations of outputs"] = stamped_places
        rules = Rules(digest, sorts, cosmetics[step.name])
        steps[step.name] = _normalize_step(step, before[step.name], folding, rules)
    return NormalForm(folding.fold(top), parameters, steps, cosmetics)


def iter_output_uris(job: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the constant URIs of a processing or transform job's outputs.

    The URIs have no slash at the end. ``job`` is the job's request or its description.
    """
    outputs = (job.get("ProcessingOutputConfig") or {}).get("Outputs") or ()
    uris = [(output.get("S3Output") or {}).get("S3Uri") for output in outputs]
    uris.append((job.get("TransformOutput") or {}).get("S3OutputPath"))
    yield from (uri.rstrip("/") for uri in uris if isinstance(uri, str))


def _map_timestamped_uris(uris: Sequence[str]) -> dict[str, str]:
    """Return a mapping of output URIs to the same URIs with ``{time}`` for the SDK's timestamp.

    URIs without a timestamp are left out. Return an empty mapping if two URIs differ only in their
    timestamps.
    """
    without = {uri: _replace_time(uri) for uri in uris}
    # Without the times, two different locations would become one.
    if len(set(without.values())) < len(without):
        return {}
    return {uri: name for uri, name in without.items() if uri != name}


def _replace_time(uri: str) -> str:
    """Return ``uri`` with ``{time}`` for the SDK's timestamp; unchanged if it has none."""
    name, time, rest = STAMP.sub("{time}", uri).partition("{time}")
    if not time:
        return uri
    bucket, slash, base = name.removeprefix("s3://").partition("/")
    # If a base name contains a slash, SDK v2 keeps it, and v3 writes a hyphen.
    return f"s3://{bucket}{slash}{base.replace('/', '-')}{time}{rest}"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings for normalizing a job's request; ``cosmetic`` receives what is left out."""

    digest: CodeDigest
    sorts: bool
    """Whether lists may be sorted; False if a reference addresses a list item by its index."""
    cosmetic: dict[str, Any]
    """Receives what the normal form leaves out: the locations of code, and tags."""


_AT_INDEX = re.compile(r"\[\d+\]")


def _normalize_step(
    step: Step, before: set[str], folding: "_Folding", rules: Rules
) -> dict[str, Any]:
    """Return the normal form of a step; ``before`` has the names of all steps that it waits for."""
    members = {
        key: folding.fold(value)
        for key, value in step.document.items()
        if key not in ("Name", "Arguments", "DependsOn", *COSMETIC)
    }
    arguments = remove_defaults(folding.fold(step.own_arguments))
    if get_step_type(step.type).job:
        if tags := arguments.pop("Tags", None):
            rules.cosmetic["Tags"] = tags
        arguments = normalize_request(remove_unused_monitoring(arguments, rules.cosmetic), rules)
    triggers = [entry for entry in _list_dependencies(step) if isinstance(entry, dict)]
    return {
        **{k: v for k, v in members.items() if v != STEP_DEFAULTS.get(k, _NOTHING)},
        "Arguments": arguments,
        "branch": list(step.branch or ()),
        "loop": step.loop,
        "after": sorted(before),
        **({"triggers": sorted(triggers, key=_dump_json)} if triggers else {}),
    }


_NOTHING = object()  # default that is unequal to every value


def _dump_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _list_dependencies(step: Step) -> list[Any]:
    """Return the entries of the step's DependsOn: step names, or objects with Step and Trigger."""
    return list(step.document.get("DependsOn") or ())


def _find_ancestors(step_list: Sequence[Step]) -> dict[str, set[str]]:
    """Return a mapping of each step to all steps that must have succeeded before it starts.

    References to a step count as well as DependsOn. An entry of DependsOn with a trigger does not
    count, because the trigger may be another status than success.
    """
    direct = {}
    for step in step_list:
        # A step also waits for the condition or the loop that contains it.
        holders = [step.branch[0] if step.branch else None, step.loop]
        plain = [entry for entry in _list_dependencies(step) if isinstance(entry, str)]
        direct[step.name] = {*step.reads, *plain, *filter(None, holders)}
    ancestors: dict[str, set[str]] = {}

    def visit(name: str) -> set[str]:
        """Return all ancestors of a step, computed once for each step."""
        if name not in ancestors:
            ancestors[name] = set()
            nearest = direct.get(name, set())
            ancestors[name] = nearest.union(*(visit(other) for other in nearest))
        return ancestors[name]

    return {step.name: visit(step.name) for step in step_list}


class _Folding:
    """Constant folding: replaces expressions whose values are the same in every execution."""

    def __init__(self, constants: Mapping[str, Any], steps: Mapping[str, Step]) -> None:
        self._constants, self._steps = constants, steps
        self.generated_names: Mapping[str, str] = {}
        """Mapping of an output's location to the same without the time that an SDK generated."""

    def fold(self, value: Any) -> Any:
        """Return a copy of ``value`` in which constant expressions are replaced by their values."""
        if isinstance(value, list):
            return [self.fold(item) for item in value]
        if isinstance(value, str):
            return self._replace_generated_name(value)
        if not isinstance(value, dict):
            return value
        if is_expression(value) and GET in value:
            return self._fold_reference(value)
        if is_expression(value) and JOIN in value:
            return self._fold_join(value[JOIN])
        return {key: self.fold(item) for key, item in value.items()}

    def _replace_generated_name(self, text: str) -> str:
        for uri, name in self.generated_names.items():
            if text == uri or text.startswith(f"{uri}/"):
                return name + text[len(uri) :]
        return text

    def _fold_reference(self, value: dict[str, Any]) -> Any:
        """Return the value of the reference ``value`` if it is constant; else the reference."""
        try:
            target = parse_get(value[GET])
        except ExpressionError:
            return value
        if target.kind == "Parameters" and target.name in self._constants:
            return self._constants[target.name]
        known_value = self._resolve_property(target) if target.kind == "Steps" else None
        return value if known_value is None else known_value

    def _resolve_property(self, target: Reference) -> str | None:
        """Return the URI that a reference to a job's property has; None if it is not constant.

        The value is known before the job runs, because Describe repeats the URIs of the request.
        """
        step = self._steps.get(target.name)
        if step is None or not get_step_type(step.type).sole_job or not target.path.endswith("Uri"):
            return None
        try:
            argument = self.fold(look_up_path(step.own_arguments, target.path, step.name))
        except ExpressionError:
            return None
        return argument if isinstance(argument, str) else None

    def _fold_join(self, body: dict[str, Any]) -> Any:
        """Return a flat Join with an empty separator; a text if all its parts are constant."""
        parts: list[Any] = []
        for position, value in enumerate(body["Values"]):
            inner = self.fold(value)
            inner_parts = (
                inner[JOIN]["Values"] if is_expression(inner) and JOIN in inner else [inner]
            )
            between = [str(body.get("On", ""))] if position else []
            for part in (*between, *inner_parts):
                text = part if isinstance(part, dict | list) else format_join_value(part)
                if parts and isinstance(parts[-1], str) and isinstance(text, str):
                    parts[-1] += text
                else:
                    parts.append(text)
        parts = [part for part in parts if part != ""]
        if not parts or (len(parts) == 1 and isinstance(parts[0], str)):
            return self._replace_generated_name("".join(parts))
        return {JOIN: {"On": "", "Values": parts}}


def normalize_request(value: Any, rules: Rules) -> Any:
    """Return a job's request, or a part of it, in normal form."""
    if isinstance(value, list):
        return [normalize_request(item, rules) for item in value]
    if not isinstance(value, dict) or is_expression(value):
        return value
    members = {key: _normalize_member(key, item, rules) for key, item in value.items()}
    return {key: item for key, item in members.items() if item != DEFAULTS.get(key, _NOTHING)}


def _normalize_member(key: str, item: Any, rules: Rules) -> Any:
    """Return the normal form of the member ``key`` of a request."""
    if key in OWN_NAMES and isinstance(item, dict) and not is_expression(item):
        return {
            k: _replace_code_uri(k, v, rules) if is_code_variable(k) else v for k, v in item.items()
        }
    if key in UNORDERED_LISTS and isinstance(item, list):
        name = UNORDERED_LISTS[key]
        inside = normalize_request([_normalize_input(entry, name, rules) for entry in item], rules)
        return _sort_items(inside, name) if rules.sorts else inside
    return normalize_request(item, rules)


def _normalize_input(item: Any, name: str, rules: Rules) -> Any:
    """Return a channel or an input; if it is code, the digest of its content replaces its URI."""
    if not isinstance(item, dict) or name not in ("ChannelName", "InputName"):
        return item
    title = str(item.get(name))
    source = item.get("S3Input") or (item.get("DataSource") or {}).get("S3DataSource") or {}
    uri = source.get("S3Uri")
    is_folder = source.get("S3DataType", "S3Prefix") == "S3Prefix"
    if not isinstance(uri, str) or not is_folder or not is_code(title, uri):
        return item
    s3_source = {**source, "S3Uri": _replace_code_uri(title, uri, rules)}
    return item | (
        {"S3Input": s3_source} if "S3Input" in item else {"DataSource": {"S3DataSource": s3_source}}
    )


def _replace_code_uri(title: str, uri: Any, rules: Rules) -> Any:
    """Return a text with the digest of the code at ``uri``; ``uri`` itself if it has no digest."""
    bare = uri.strip('"') if isinstance(uri, str) else ""
    content = rules.digest(bare) if bare else None
    if content is None:
        return uri
    rules.cosmetic[f"location of {title}"] = bare
    return uri.replace(bare, f"code with the content {content}")


def _sort_items(items: list[Any], name: str) -> list[Any]:
    """Return the items sorted by their member ``name``.

    Return them unsorted if two items share a name, or if the location of one is inside another's:
    then the order decides which files win.
    """
    if not all(isinstance(item, dict) and isinstance(item.get(name), str) for item in items):
        return items
    names = [item[name] for item in items]
    if len(set(names)) < len(names):
        return items
    for member in _PLACES:
        locations = [location for item in items if (location := _find_text(item, member))]
        # With a slash at the end, /a/b is not a prefix of /a/bc. Sorted, a folder directly precedes
        # what is in it.
        folders = sorted(location.rstrip("/") + "/" for location in locations)
        if any(b.startswith(a) for a, b in zip(folders, folders[1:], strict=False)):
            return items
    return sorted(items, key=lambda item: item[name])


_PLACES = (("S3Input", "LocalPath"), ("S3Output", "S3Uri"))


def _find_text(item: Mapping[str, Any], path: Sequence[str]) -> str | None:
    """Return the member at ``path`` (two names) of an item as text; None if there is none."""
    holder = item.get(path[0])
    value = holder.get(path[1]) if isinstance(holder, dict) else None
    return value if value is None or isinstance(value, str) else _dump_json(value)


def match_renames(old: NormalForm, new: NormalForm) -> dict[str, str]:
    """Return a mapping of each renamed step of ``new`` to its name in ``old``.

    Steps are matched by their normal forms. A step that matches several steps is left out.
    """
    first, second = _hash_steps(old, new), _hash_steps(new, old)
    renames = {}
    for name, digest in second.items():
        matches = [other for other, mark in first.items() if mark == digest]
        if len(matches) == 1 and list(second.values()).count(digest) == 1:
            renames[name] = matches[0]
    return renames


def _hash_steps(normal: NormalForm, others: NormalForm) -> dict[str, str]:
    """Return a mapping of each step that only ``normal`` has to a digest of its normal form.

    Where a step refers to another such step, that step's digest replaces its name, so that the
    digests do not depend on names.
    """
    digests: dict[str, str] = {}
    for name, form in normal.steps.items():
        if name not in others.steps:
            marks = dict(digests)
            digests[name] = hash_json(rename_step_references(form, marks))
    return digests


def rename_step_references(form: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a step's normal form with steps renamed; ``names`` maps old names to new ones."""
    result = {key: _rename_references(item, names) for key, item in form.items()}
    result["after"] = sorted(names.get(name, name) for name in form["after"])
    result["branch"] = [names.get(name, name) for name in form["branch"]]
    result["loop"] = names.get(form["loop"], form["loop"])
    for entry in result.get("triggers", ()):
        entry["Step"] = names.get(entry.get("Step"), entry.get("Step"))
    return result


def _rename_references(value: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a normal form in which references to steps have the new names."""
    if isinstance(value, list):
        return [_rename_references(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    if not is_expression(value) or GET not in value:
        return {key: _rename_references(item, names) for key, item in value.items()}
    target = next(iter_known_references(value), None)
    if target is None or target.kind not in ("Steps", "PropertyFiles"):
        return value
    return {GET: f"Steps.{names.get(target.name, target.name)}.{value[GET].split('.', 2)[2]}"}


# Different spellings of a training job's request that do not change its work.

WATCHING = ("DebugHookConfig", "ProfilerConfig")
"""Members that ask only for metrics of the machine, or for no tensors; SDK v2 adds both."""
_RULES = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")
"""Members that start jobs of their own, which read what the debugger and the profiler save."""

_MACHINES = "HyperParameterTuningResourceConfig"
"""The tuning job's name of ResourceConfig; it may list several instance types, too."""
_PLAIN = {"InstanceCount", "InstanceType", "VolumeSizeInGB", "VolumeKmsKeyId"}
"""Members that both of these structures have."""


def remove_unused_monitoring(arguments: dict[str, Any], cosmetic: dict[str, Any]) -> dict[str, Any]:
    """Return the request without the members in ``WATCHING`` if no job reads what they save.

    The removed members are added to ``cosmetic``.
    """
    collections = (arguments.get("DebugHookConfig") or {}).get("CollectionConfigurations")
    if collections or any(arguments.get(name) for name in _RULES):
        return arguments
    cosmetic |= {name: arguments[name] for name in WATCHING if name in arguments}
    return {name: item for name, item in arguments.items() if name not in WATCHING}


def remove_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the request without members that repeat a default.

    These are the input mode of a channel if it is the job's, the compression of the model if
    it is GZIP, and empty lists of ranges of a tuning job. A tuning job's resources get the name
    ResourceConfig if they have only members that ResourceConfig has.
    """
    result = dict(arguments)
    # A tuning job contains the definitions of training jobs, which are requests of the same form.
    for key in ("TrainingJobDefinition", "TrainingJobDefinitions"):
        if isinstance(inside := result.get(key), dict):
            result[key] = remove_defaults(inside)
        elif isinstance(inside, list):
            result[key] = [remove_defaults(item) for item in inside]
    config = result.get("HyperParameterTuningJobConfig")
    if isinstance(config, dict) and isinstance(ranges := config.get("ParameterRanges"), dict):
        some = {key: range_list for key, range_list in ranges.items() if range_list != []}
        result["HyperParameterTuningJobConfig"] = {**config, "ParameterRanges": some}
    machines = result.get(_MACHINES)
    if isinstance(machines, dict) and machines.keys() <= _PLAIN and "ResourceConfig" not in result:
        result["ResourceConfig"] = result.pop(_MACHINES)
    output = result.get("OutputDataConfig")
    if isinstance(output, dict) and output.get("CompressionType") == "GZIP":
        result["OutputDataConfig"] = _drop_member(output, "CompressionType", "GZIP")
    mode = (result.get("AlgorithmSpecification") or {}).get("TrainingInputMode")
    if mode is not None and isinstance(result.get("InputDataConfig"), list):
        result["InputDataConfig"] = [
            _drop_member(c, "InputMode", mode) for c in result["InputDataConfig"]
        ]
    return result


def _drop_member(item: Any, name: str, value: Any) -> Any:
    """Return ``item`` without the member ``name`` if that member has this value."""
    if not isinstance(item, dict) or item.get(name) != value:
        return item
    return {key: entry for key, entry in item.items() if key != name}
