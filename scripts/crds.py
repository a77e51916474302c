"""Write pipelines/kubernetes/schemas.json: the schemas of the Kubernetes kinds that we export.

python scripts/crds.py

The CRDs' schemas are taken from the models that their projects publish on PyPI, generated from
those very CRDs, in the releases that crds.txt names by their hashes; nothing of them is installed,
and only pydantic models are run. HyperPod's CRD is in no public repository: its schema is that of
the models in AWS's own command line (sagemaker-hyperpod), which check a job there.
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
OUT = CHECKOUT / "pipelines/kubernetes/schemas.json"
PINNED = Path(__file__).with_name("crds.txt")
RELEASES = dict(re.findall(r"^(\S+)==(\S+)", PINNED.read_text(encoding="utf-8"), re.MULTILINE))
"""Package → release."""
POD = "IoK8sApiCoreV1PodTemplateSpec"
"""Name of Kubernetes' own pod, in all kinds, in kubeflow-trainer-api."""
DEFAULTED = {"run_policy"}
"""Fields that the models require, and the operator does not."""
PRIMITIVES = {"str": "string", "int": "integer", "bool": "boolean", "object": "object"}


def main() -> None:
    """Load the releases, and write their schemas."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _unpack(folder)
        sys.path.insert(0, str(folder))
        shapes: dict[str, Any] = {}
        kinds = {
            **_trainer("TrainJob", "train_job", shapes),
            **_trainer("TrainingRuntime", "training_runtime", shapes),
            **_pytorch_job(folder / "kubeflow/training/models", shapes),
            **_hyperpod(folder / "sagemaker/hyperpod/training/config", shapes),
        }
    document = {
        "releases": RELEASES,
        "licence": "Apache-2.0, of each of these releases; derived by scripts/crds.py",
        "kinds": kinds,
        "$defs": dict(sorted(_reachable(kinds, shapes).items())),
    }
    OUT.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{OUT.relative_to(CHECKOUT)}: {len(kinds)} kinds, {len(document['$defs'])} shapes")


def _unpack(folder: Path) -> None:
    exactly = ("--no-deps", "--require-hashes", "--only-binary=:all:", f"--requirement={PINNED}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", *exactly, "--dest", str(folder)]
    subprocess.run(command, check=True)
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)


def _trainer(kind: str, module: str, shapes: dict[str, Any]) -> dict[str, Any]:
    """Return a kind of Kubeflow Trainer, v2."""
    models = import_module(f"kubeflow_trainer_api.models.trainer_v1alpha1_{module}")
    schema = getattr(models, f"TrainerV1alpha1{kind}").model_json_schema(by_alias=True)
    shapes |= {name: _shape(shape) for name, shape in schema["$defs"].items()}
    return _kind(kind, "trainer.kubeflow.org/v1alpha1", _shape(schema)["properties"]["spec"])


def _pytorch_job(models: Path, shapes: dict[str, Any]) -> dict[str, Any]:
    """Return PyTorchJob of the Training Operator, v1; its models are not pydantic: read, not
    imported.
    """
    for path in sorted(models.glob("kubeflow_org_v1_*.py")):
        text = path.read_text(encoding="utf-8")
        found = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef))
        tables = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in found.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        names, types = tables["attribute_map"], tables["openapi_types"]
        must = set(re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)) - DEFAULTED
        shapes[found.name] = {
            "type": "object",
            "properties": {names[field]: _typed(kind) for field, kind in types.items()},
            "required": sorted(names[field] for field in must),
            "additionalProperties": False,
        }
    return _kind("PyTorchJob", "kubeflow.org/v1", _reference("KubeflowOrgV1PyTorchJobSpec"))


def _typed(kind: str) -> dict[str, Any]:
    """Return ``dict(str, V1PodTemplateSpec)`` as a schema."""
    if inner := re.fullmatch(r"list\[(.+)\]", kind):
        return {"type": "array", "items": _typed(inner[1])}
    if inner := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return {"type": "object", "additionalProperties": _typed(inner[1])}
    if kind in PRIMITIVES:
        return {"type": PRIMITIVES[kind]}
    if kind.startswith("KubeflowOrg"):
        return _reference(kind)
    # Other projects' types: the pod's is known, the rest (times, metrics of an autoscaler) is open.
    return _reference(POD) if kind == "V1PodTemplateSpec" else {}


def _hyperpod(folder: Path, shapes: dict[str, Any]) -> dict[str, Any]:
    """Return HyperPodPyTorchJob, from the models of AWS's command line."""
    sys.path.insert(0, str(folder))  # the package around it would be the SDK's sagemaker
    models = import_module("hyperpod_pytorch_job_unified_config")
    schema = models._HyperPodPytorchJob.model_json_schema(by_alias=False)
    prefixed = json.loads(json.dumps(schema).replace("#/$defs/", "#/$defs/HyperPod"))
    shapes |= {f"HyperPod{name}": _shape(shape) for name, shape in prefixed["$defs"].items()}
    # Not their pod: in their models two types of one name are one class, so they refuse a pod's
    # anti-affinity (aws-samples/awsome-distributed-training, llama3_1_8b-fsdp-hpto.yaml).
    shapes["HyperPodReplicaSpec"]["properties"]["template"] = _reference(POD)
    spec = _shape({key: value for key, value in prefixed.items() if key != "$defs"})
    shapes["HyperPodJobSpec"] = spec | {"additionalProperties": False}
    return _kind("HyperPodPyTorchJob", "sagemaker.amazonaws.com/v1", _reference("HyperPodJobSpec"))


def _kind(kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a manifest of the kind."""
    metadata = _reference("IoK8sApimachineryPkgApisMetaV1ObjectMeta")
    return {
        kind: {
            "type": "object",
            "properties": {
                "apiVersion": {"const": version},
                "kind": {"const": kind},
                "metadata": metadata,
                "spec": spec,
            },
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "additionalProperties": False,
        }
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _shape(value: Any) -> Any:
    """Return a schema without its prose, closed to fields that it does not name."""
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    match value.get("anyOf"):
        case [alone, {"type": "null"}]:  # an optional field; a message names one type, not two
            return _shape(alone)
    properties = value.get("properties")
    if isinstance(properties, dict) and "one_of_schemas" in properties:
        return {"type": ["string", "number"]}  # quantities, and values that are "int or string"
    found = {
        key: {name: _shape(inner) for name, inner in item.items()}
        if key == "properties"
        else _shape(item)
        for key, item in value.items()
        if key == "properties" or key not in ("description", "title", "default")
    }
    if isinstance(properties, dict):
        found.setdefault("additionalProperties", False)
    return found


def _reachable(kinds: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas that the kinds refer to, directly or not."""
    found: dict[str, Any] = {}
    waiting = re.findall(r"#/\$defs/([^\"]+)", json.dumps(kinds))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = shapes[name]
            waiting += re.findall(r"#/\$defs/([^\"]+)", json.dumps(found[name]))
    return found


if __name__ == "__main__":
    main()
