"""Spellings of a training's request that change no work."""

from typing import Any

WATCHING = ("DebugHookConfig", "ProfilerConfig")
"""Members that only ask for metrics of the machine, or for no tensors: SDK v2 adds both."""
_RULES = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")
"""Jobs of their own, which read what is saved."""

_MACHINES = "HyperParameterTuningResourceConfig"
"""Another name of ResourceConfig in a tuning job, which may list several types besides."""
_PLAIN = {"InstanceCount", "InstanceType", "VolumeSizeInGB", "VolumeKmsKeyId"}


def remove_unwatched(arguments: dict[str, Any], cosmetic: dict[str, Any]) -> dict[str, Any]:
    """Return the request without members that no job reads; they go into ``cosmetic``."""
    collections = (arguments.get("DebugHookConfig") or {}).get("CollectionConfigurations")
    if collections or any(arguments.get(name) for name in _RULES):
        return arguments
    cosmetic |= {name: arguments[name] for name in WATCHING if name in arguments}
    return {name: item for name, item in arguments.items() if name not in WATCHING}


def without_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the request without what it says again: a channel's input mode, which is the
    training's, the compression of a model that is not said otherwise, and a tuning job's lists
    of no ranges.
    """
    result = dict(arguments)
    for key in ("TrainingJobDefinition", "TrainingJobDefinitions"):  # a tuning job's
        if isinstance(inside := result.get(key), dict):
            result[key] = without_defaults(inside)
        elif isinstance(inside, list):
            result[key] = [without_defaults(item) for item in inside]
    config = result.get("HyperParameterTuningJobConfig")
    if isinstance(config, dict) and isinstance(ranges := config.get("ParameterRanges"), dict):
        some = {key: range_list for key, range_list in ranges.items() if range_list != []}
        result["HyperParameterTuningJobConfig"] = {**config, "ParameterRanges": some}
    machines = result.get(_MACHINES)
    if isinstance(machines, dict) and machines.keys() <= _PLAIN and "ResourceConfig" not in result:
        result["ResourceConfig"] = result.pop(_MACHINES)
    output = result.get("OutputDataConfig")
    if isinstance(output, dict) and output.get("CompressionType") == "GZIP":
        result["OutputDataConfig"] = _less(output, "CompressionType", "GZIP")
    mode = (result.get("AlgorithmSpecification") or {}).get("TrainingInputMode")
    if mode is not None and isinstance(result.get("InputDataConfig"), list):
        result["InputDataConfig"] = [_less(c, "InputMode", mode) for c in result["InputDataConfig"]]
    return result


def _less(item: Any, name: str, value: Any) -> Any:
    if not isinstance(item, dict) or item.get(name) != value:
        return item
    return {key: entry for key, entry in item.items() if key != name}
