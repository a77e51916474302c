"""``python -m pipelines.export``: manifests that are right, and pods that really train."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from pipelines.export import main
from pipelines.kubernetes.kinds import KINDS
from tests.training.worlds import free_port
from trainyard.common.errors import DefinitionError, RecipeError

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parents[2]
RECIPES = CHECKOUT / "recipes"
SMALL = [
    "workload.config={tokenizer: bytes, context_length: 16, layers: 1, heads: 2, dim: 16}",
    *("train.loop.max_steps=4", "train.loop.log_interval=1", "train.loop.warmup_steps=1"),
    *("train.loop.precision=float32", "train.loop.micro_batch=2", "train.loop.global_batch=4"),
]


def exported(
    out: Path, kind: str, recipe: str | Path = "laptop", overrides=(), **more
) -> list[dict]:
    """The documents that the verb writes; ``recipe``: one of ours by name, or a file."""
    data = [f"{name}=s3://b/run/shard/{name}" for name in ("train", "validation")]
    options = {"claim": "fsx", "channel": data, "overrides": overrides} | more
    file = RECIPES / f"{recipe}.yaml" if isinstance(recipe, str) else recipe
    main(file, to=kind, out=out / "job.yaml", **options)
    return list(yaml.safe_load_all((out / "job.yaml").read_text()))


def pod_of(documents: list[dict]) -> dict:
    """The PodSpec, wherever the kind has it."""
    spec = documents[0]["spec"]
    match documents[0]["kind"]:
        case "TrainingRuntime":
            job = spec["template"]["spec"]["replicatedJobs"][0]
            return job["template"]["spec"]["template"]["spec"]
        case "PyTorchJob":
            return spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
        case _:
            return spec["replicaSpecs"][0]["template"]["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_pods_ask_for_the_machines_of_the_recipe(kind, tmp_path):
    pod = pod_of(exported(tmp_path, kind, "prod", efa=4, service_account="trainer"))
    trainer = pod["containers"][0]
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4}
    fetched = [c["command"][-2:] for c in pod["initContainers"] if c["name"] != "packages"]
    assert ["s3://b/run/shard/train", "/opt/ml/input/data/train"] in fetched
    assert pod["serviceAccountName"] == "trainer"
    kept = {m["mountPath"] for m in trainer["volumeMounts"] if m["name"] == "kept"}
    assert kept == {"/opt/ml/checkpoints", "/opt/ml/model"}


def test_the_nodes_and_ranks_are_those_of_the_recipe(tmp_path):
    _, job = exported(tmp_path, "trainjob", "mesh")
    assert job["spec"]["trainer"] == {"numNodes": 2, "numProcPerNode": 4}
    (job,) = exported(tmp_path, "pytorchjob", "mesh")
    assert (job["spec"]["nprocPerNode"], job["spec"]["elasticPolicy"]["minReplicas"]) == ("4", 2)
    (job,) = exported(tmp_path, "hyperpod", "mesh")
    command = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["command"]
    assert command == ["hyperpodrun", "--tee=3", "--nnodes=2", "--nproc_per_node=4"]


@pytest.mark.parametrize("kind", ["trainjob", "pytorchjob", "hyperpod"])
def test_metrics_are_served_in_the_pod_where_the_recipe_says_so(kind, tmp_path):
    given = {"overrides": ["train.loop.metrics_port=9400"]}
    documents = exported(tmp_path, kind, "mesh", **given)
    container = pod_of(documents)["containers"][0]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9400}]
    host = {"fieldRef": {"fieldPath": "status.podIP"}}
    assert {"name": "TRAINYARD_METRICS_HOST", "valueFrom": host} in container["env"]
    assert "'prometheus.io/port': '9400'" in str(documents)
    plain = exported(tmp_path, kind, "mesh")
    assert "prometheus.io" not in str(plain) and "ports" not in pod_of(plain)["containers"][0]


def test_what_the_operator_of_a_train_job_sets_is_not_set_twice(tmp_path):
    runtime, _ = exported(tmp_path, "trainjob", "mesh")  # which says PET_NPROC_PER_NODE itself
    names = {each["name"] for each in pod_of([runtime])["containers"][0]["env"]}
    assert "PET_MAX_RESTARTS" in names and "PET_NPROC_PER_NODE" not in names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "trainjop"}, "nearest valid name: trainjob"),
        ({"channel": []}, "only a run knows where the data of channel train are"),
        ({"channel": ["trian=s3://b/x"]}, "step Train has no such channel; it has train, valid"),
        ({"recipe": "prod"}, "give with --efa the interfaces"),
        ({"recipe": "tuned"}, "step Train: only a run knows learning_rate, weight_decay; put"),
        (
            {
                "overrides": [
                    *("train.instance_type=ml.trn1.32xlarge", "train.processes_per_node=1"),
                    "images.training=123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1",
                ]
            },
            "not a type whose GPUs or CPUs",
        ),
        (
            {"overrides": ["train.launcher=mpi", "train.processes_per_node=1"]},
            "train.launcher: is mpi, and on Kubernetes the operators start torchrun's",
        ),
    ],
)
def test_what_cannot_be_exported_is_refused_with_the_field(options, said, tmp_path):
    with pytest.raises((DefinitionError, RecipeError), match=re.escape(said)):
        exported(tmp_path, **{"kind": "hyperpod", **options})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return the recipe of a user's own script."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("print('loss=1')\n")
    (tmp_path / "mine/evaluate.py").write_text("")
    recipe = {
        "pipeline": {"name": "Mine"},
        "aws": {"region": "us-east-1", "role": "arn:aws:iam::123456789012:role/t", "bucket": "bkt"},
        "train": {
            "script": "mine/train.py",
            "arguments": {"epochs": 3},
            "channels": {"training": "s3://bkt/data"},
            "metrics": {"loss": r"loss=(\S+)"},
        },
        "evaluate": {
            "script": "mine/evaluate.py",
            "channels": {"test": "s3://bkt/test"},
            "metrics": {"accuracy": "higher"},
        },
        "gate": {"min_accuracy": 0.9},
        "register": {"model_package_group": "mine"},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path / "mine.yaml"


def test_a_script_of_ones_own_is_told_what_aws_would_tell_it(own, tmp_path):
    (job,) = exported(tmp_path, "hyperpod", own, channel=[])
    trainer = pod_of([job])["containers"][0]
    told = {each["name"]: each["value"] for each in trainer["env"]}
    assert told["SM_CHANNEL_TRAINING"] == "/opt/ml/input/data/training"
    assert (told["SM_MODEL_DIR"], told["SM_HPS"]) == ("/opt/ml/model", '{"epochs": 3}')
    assert trainer["args"] == ["train.py", "--epochs", "3"]
    rule = job["spec"]["runPolicy"]["logMonitoringConfiguration"][0]
    assert re.fullmatch(rule["logPattern"], "epoch 1 loss=0.5 accuracy=0.7")[1] == "0.5"
    with pytest.raises(DefinitionError, match=r"train\.launcher: is none"):
        exported(tmp_path, "hyperpod", own, channel=[], overrides=["train.launcher=none"])


def test_it_needs_no_aws_and_no_credentials(run_python):
    done = run_python(
        *("-m", "pipelines.export", "--recipe", "recipes/laptop.yaml", "--to", "pytorchjob"),
        *("--claim", "c", "--channel", "train=s3://b/t", "--channel", "validation=s3://b/v"),
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["kind"] == "PyTorchJob"


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """A few lines of text, sharded by the shard step's own job: train/ and validation/."""
    folder = tmp_path_factory.mktemp("shards")
    lines = [json.dumps({"text": f"line {n} of a small text, {n * n}"}) for n in range(400)]
    (folder / "raw").mkdir()
    (folder / "raw/a.jsonl").write_text("\n".join(lines))
    config = '{"tokenizer": "bytes", "context_length": 16, "layers": 1, "heads": 2, "dim": 16}'
    command = ["python", "-m", "steps.shard.job", "--workload_config", config]
    command += ["--workload", "language_model", "--input", f"{folder}/raw", "--output"]
    share = ["--validation_share", "0.2", "--test_share", "0.2"]
    subprocess.run([*command, f"{folder}/out", *share], check=True, cwd=CHECKOUT)
    return folder / "out"


PODS = {
    "trainjob": lambda rank, port: {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    },
    "pytorchjob": lambda rank, port: {
        "PET_NNODES": "2:2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}",
        "PET_RDZV_ID": "job",
        "PET_MAX_RESTARTS": "3",
    },
}
"""Kind → what its operator sets in a pod."""


def run_pods(pod: dict, kind: str, shards: Path, root: Path) -> list[str]:
    """The command of the pod, once a node, both on this machine; what each of them printed."""
    (root / "input/data").mkdir(parents=True)
    for split in ("train", "validation"):
        (root / "input/data" / split).symlink_to(shards / split)
    trainer, port = pod["containers"][0], free_port()
    own = {each["name"]: each["value"] for each in trainer["env"]}
    pods = []
    for rank in range(2):
        environment = os.environ | own | PODS[kind](rank, port)
        environment |= {"PYTHONPATH": str(CHECKOUT), "GLOO_SOCKET_IFNAME": "lo"}
        environment |= {"OMP_NUM_THREADS": "1", "TORCH_FR_DUMP_TEMP_FILE": f"{root}/fr"}
        command = [*trainer["command"], *trainer["args"], "--root", str(root)]
        log = (root / f"pod-{rank}.log").open("w")
        where = {"cwd": CHECKOUT, "env": environment, "stdout": log, "stderr": log}
        pods.append(subprocess.Popen(command, **where))
    ended = [pod.wait(timeout=280) for pod in pods]
    said = [(root / f"pod-{rank}.log").read_text() for rank in range(2)]
    assert ended == [0, 0], "\n".join(said)
    return said


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("kind", PODS)
def test_pods_with_the_variables_of_the_operator_train_together(kind, shards, tmp_path):
    pod = pod_of(exported(tmp_path, kind, overrides=SMALL))
    said = "\n".join(run_pods(pod, kind, shards, tmp_path / "ml"))

    described = json.loads((tmp_path / "ml/model/config.json").read_text())
    assert (described["world_size"], described["steps"]) == (2, 4)
    # What HyperPod looks for, in the lines that were really printed.
    (job,) = exported(tmp_path, "hyperpod", overrides=SMALL)
    rules = job["spec"]["runPolicy"]["logMonitoringConfiguration"]
    assert {rule["name"] for rule in rules} == {"JobStart", "JobHangingDetection"}
    for rule in rules:
        found = [re.fullmatch(rule["logPattern"], line) for line in said.splitlines()]
        assert {"1", "2", "3", "4"} <= {match[1] for match in found if match}
