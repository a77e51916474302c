"""Whatever a recipe says that cannot be meant is refused, by its field and with what to do."""

from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT
from tests.trainyard.plan.pictures import HERE
from trainyard.common.errors import RecipeError

LAPTOP, PROD, FLIGHTS, TUNED = (
    CHECKOUT / f"recipes/{name}.yaml" for name in ("laptop", "prod", "flights", "tuned")
)
SCRIPT = CHECKOUT / "tests/somebodys/recipe.yaml"
XGBOOST, DEV = CHECKOUT / "recipes/flights_xgboost.yaml", HERE / "recipe.yaml"
P5 = "train.instance_type=ml.p5.48xlarge"

FIELDS = {
    LAPTOP: [
        ("nearest valid name: register", "reigster.x=1"),
        ("unknown field; nearest valid name: max_bits_per_byte", "gate.max_bits_per_bit=1"),
        ("nearest valid name: bigram", "gate.below_baseline=bigrma"),
        ("gate.max_bits_per_byte: is 'low'", "gate.max_bits_per_byte=low"),
        ("is nan; expected a finite number", "gate.max_bits_per_byte=.nan"),
        ("gate.superiority.bits: is not a metric of workload", "gate.superiority={bits: 0}"),
        ("superiority.perplexity: is not a sum over", "gate.superiority={perplexity: 0}"),
        ("gate.superiority.bits_per_byte: is -1", "gate.superiority={bits_per_byte: -1}"),
        ("gate.non_inferiority.loss: is 0", "gate.non_inferiority={loss: 0}"),
        ("gate.clip.loss: is inf", "gate.clip={loss: .inf}"),
        ("gate.range.bits: no check compares it", "gate.range={bits: 1}"),
        ("gate.clip.perplexity: no check compares it", "gate.clip={perplexity: 1}"),
        ("gate.confidence: is 1", "gate.confidence=1"),
        ("gate.cold_start: is 'pass', so nothing would check", "gate={superiority: {loss: 0}}"),
        ("gate: nothing to check", "gate={cold_start: reject}"),
        ("context_length 33 / tensor_parallel 2 = 16.50 positions per rank",
         "workload.config.context_length=33", "train.loop.tensor_parallel=2"),
        ("evaluate.script: applies only to a training script", "evaluate.script=a.py"),
        ("evaluate.baselines: applies only to a training script", "evaluate.baselines=[b]"),
        ("evaluate.metrics: applies only to a training script", "evaluate.metrics={m: lower}"),
        ("evaluate.slices: 'sources' is not a slice of workload language_model; nearest",
         "evaluate.slices=[sources]"),
        ("; set shard.by_folder to true", "evaluate.slices=[source]"),
        # what contradicts another field
        ("aws.region: is 'us-esat-1'; no such region of SageM", "aws.region=us-esat-1"),
        ("nearest valid name: us-east-1", "aws.region=useast1"),
        ("gate.instance_type: is 'ml.m5.lrage'; no", "gate.instance_type=ml.m5.lrage"),
        ("train.loop.warmup_steps: is 300, and the training ends after max_steps 300: the "
         "learning rate would only rise; expected less, such as 15", "train.loop.warmup_steps=300"),
        ("train.loop.learning_rate: is 500; expected at most 1, such as 0.001",
         "train.loop.learning_rate=500"),
        ("is 0.1, which global_batch 16 / reference_batch 1 scales to 1.6; expected at most 1",
         "train.loop.learning_rate=0.1", "train.loop.reference_batch=1"),
        ("gate.max_bits_per_byte: is -2.8, which no model meets: bits_per_byte is never below 0; "
         "expected a number above 0, such as 2.8", "gate.max_bits_per_byte=-2.8"),
        ("gate.max_loss: is 0, which no model meets", "gate.max_loss=0"),
        ("train.loop.checkpoint_interval: is 300, and the training ends after max_steps 300: with "
         "spot, each interruption would lose all steps; expected less, such as 30",
         "train.spot=true", "train.max_wait_minutes=60", "train.loop.checkpoint_interval=300"),
        # the image under which it trains
        ("images.registry", "images.registry=docker.io/library"),
        # the weights that it starts from
        ("train.start_from.checkpoint: is 'here'", "train.start_from={checkpoint: here}"),
        ("nearest valid name: checkpoint", "train.start_from={checkpoints: s3://bucket/x}"),
        ("set one of the two",
         "train.start_from={model: s3://bucket/model.tar.gz, checkpoint: s3://bucket/x}"),
        ("max_step is not a part of a training",
         "train.start_from={checkpoint: s3://bucket/x, may_differ: [max_step]}"),
    ],
    FLIGHTS: [
        ("gate.min_accuracy: is 90, which no model meets: accuracy is never above 1; expected a "
         "number up to 1, such as 0.9", "gate.min_accuracy=90"),
        ("gate.max_log_loss: is 0.2, below min_log_loss 0.3: no model meets both",
         "gate.max_log_loss=0.2", "gate.min_log_loss=0.3"),
        ("gate.superiority.accuracy: is 1, but two models never differ by more than 1",
         "gate.superiority={accuracy: 1}"),
        ("'carier' is not a slice of workload tabular; nearest valid name: carrier",
         "evaluate.slices=[carier]"),
        ("'temp' is not a slice of workload tabular", "evaluate.slices=[temp]"),
        ("monitor: reads captured requests; set deploy.endpoint", "monitor.days=7"),
    ],
    TUNED: [
        ("train.loop.validation_interval: is 120, and the training ends after max_steps 120: "
         "tune.stop_early compares unfinished training jobs",
         "train.loop.validation_interval=120"),
    ],
    SCRIPT: [
        ("evaluate.script: is missing", "evaluate.script=null"),
        ("evaluate.script: 'evaluate.sh' must end in .py", "evaluate.script=evaluate.sh"),
        ("evaluate.metrics: is missing", "evaluate.metrics={}"),
        ("evaluate.metrics: 'label' is not a metric's name", "evaluate.metrics={label: higher}"),
        ("evaluate.metrics: 'a.b' is not a metric's name", "evaluate.metrics={a.b: higher}"),
        ("evaluate.metrics.leaked_groups: gate.max_", "evaluate.metrics={leaked_groups: lower}"),
        ("evaluate.channels: is missing", "evaluate.channels={}"),
        ("evaluate.channels: is missing", "evaluate.channels={train: s3://somebodys/a}"),
        ("channels: 'model' is the job's", "evaluate.channels={model: s3://somebodys/a}"),
        ("gate.max_latency_p95_ms: needs evaluate.request", "evaluate.request=null"),
        ("gate.max_latency_p95_ms: needs inference.script", "inference.script=null"),
        ("gate.below_baseline: 'chance' is not a baseline", "gate.below_baseline=chance"),
        ("gate.min_acuracy: unknown field; nearest valid name: min_accur", "gate.min_acuracy=0.5"),
        ("transform: scores records with a workload", "transform={input: s3://somebodys/new}"),
        ("gate.superiority.auc: is not a metric", "gate.superiority={auc: 0}"),
        ("train.channels.wheels: packages.wheelhouse has a",
         "packages={wheelhouse: true}", "train.channels={wheels: s3://bucket/x}"),
        (r"loss: 'loss=\\S+' has 0 groups; ", r"train.metrics.loss='loss=\S+'"),
        ("train.metrics: loss: '(a)(b)' has 2 groups", "train.metrics.loss='(a)(b)'"),
        ("train.metrics: loss: '(' is not a regular expression", "train.metrics.loss='('"),
        ("train.channels: 'code' is not a channel's name", "train.channels.code=s3://a-b/c"),
        ("train.channels.x: is '/data'; expected text like s3://", "train.channels.x=/data"),
        ("train.arguments: '--epochs' is not an argument's name", "train.arguments.--epochs=1"),
        ("train.arguments: epochs is null", "train.arguments.epochs=null"),
        ("loop", "train.loop={max_steps: 1}"),
        ("train.script: 'train.sh' must end in .py with launcher torch",
         "train.script=train.sh", "train.launcher=torchrun"),
        ("train: max_restarts is 1", "train={script: a.py, launcher: none, max_restarts: 1}"),
        ("train: launcher own and driver go together", "train.launcher=own"),
        ("train: start_from", "train.start_from={model: 's3://b-b/m.tar.gz'}"),
        ("'MaxSteps' is not a parameter that a run may change", "pipeline.overridable=[MaxSteps]"),
        ("hf_token: looks like a secret",
         "train.arguments.hf_token=hf_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0"),
    ],
    XGBOOST: [
        ("gate.below_baseline: 'constant' is not a baseline … there is none to choose",
         "gate.below_baseline=constant", "evaluate.baselines=[]"),
    ],
    DEV: [
        ("an image for cpu", P5, "train.fallback_instance_types=[ml.m5.large]"),
        ("ml.nope.large: no such instance type", P5,
         "train.fallback_instance_types=[ml.nope.large]"),
        ("ml.p4d.24xlarge is listed twice, or is also instance_type", P5,
         "train.fallback_instance_types=[ml.p4d.24xlarge, ml.p4d.24xlarge]"),
        ("list this parameter in pipeline.overridable", P5,
         "train.fallback_instance_types=[ml.p4d.24xlarge]",
         "pipeline.overridable=[MaxSteps]"),
        ("training_plan: its machines are reserved", "train.spot=true",
         "train.training_plan=arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-in-may",
         "train.max_wait_minutes=2000"),
    ],
}  # fmt: skip

SERVED = ("deploy.endpoint=live", "deploy.capture_share=1", "monitor.prediction=probability")
DEPLOYED = {
    LAPTOP: [
        ("share: 0.5 of 1 instances is 1, more than half", "deploy.instance_count=1"),
        ("share: 0.5 of 3 instances is 2, more than half", "deploy.instance_count=3"),
        ("deploy.share", "deploy.share=0.6"),
        ("set capture_share", "deploy.compare={quality: bits_per_byte}"),
        ("needs both models to serve requests", "deploy.compare={}", "deploy.shift=all_at_once"),
        ("deploy.endpoint", "deploy.endpoint=a_b"),
        ("2 is too short for max_p95_ms", "deploy.max_p95_ms=250", "deploy.bake_minutes=2"),
        ("deploy.compare.quality: 'bit_per_byte' is not a number … nearest valid name: bits_per_b",
         "deploy.capture_share=1", "deploy.compare={quality: bit_per_byte}"),
        ("instance_type", "deploy.instance=x"),
    ],
    FLIGHTS: [
        ("deploy.capture_share", "monitor.days=7"),
        ("error", *SERVED, "monitor.eror=0.1"),
        ("monitor.prediction: 'probabilty' is not a number … nearest valid name: probability",
         *SERVED, "monitor.prediction=probabilty"),
        ("name this number in monitor.prediction", *SERVED, "monitor.prediction=null", "monitor.truths=s3://bkt/t"),
        ("name their prefix in monitor.truths", *SERVED, "monitor.metric=brier"),
    ],
}  # fmt: skip

ARN = "arn:aws:codeartifact:us-east-1:123456789012:repository/corp/pypi"
PACKAGES = [
    ("packages.index: is 'https://…@", "{index: 'https://me:secret@pypi.example.com/simple'}"),
    ("expected https://HOST/PATH", "{index: 'http://pypi.example.com/simple'}"),
    ("expected https://HOST/PATH", "{index: 'https://pypi.example.com/simple?token=1'}"),
    ("use no index; remove one of the two", "{index: 'https://h/simple', wheelhouse: true}"),
    ("packages.python.0: is 3.12; expected text like", "{wheelhouse: true, python: [3.12]}"),
    ("packages.python.0: is 'py312'; expected", "{wheelhouse: true, python: ['py312']}"),
    ("packages.codeartifact", "{codeartifact: corp/pypi}"),
    ("codeartifact: jobs with a wheelho", f"{{codeartifact: '{ARN}', wheelhouse: true}}"),
    ("codeartifact is set, too; remove", f"{{codeartifact: '{ARN}', index: 'https://h/s'}}"),
    ("python: is used only with wheelhouse: true", "{python: ['3.12']}"),
]
RATE = "learning_rate: {min: 0.0001, max: 0.1, scale: log}"
TUNE = [
    ("nearest valid name: learning_rate", "{learnin_rate: {min: 0.1, max: 1}}"),
    ("does not contain train.loop.learning_rate, which is 0.005",
     "{learning_rate: {min: 0.1, max: 1}}"),
    ("is not below max", "{learning_rate: {min: 0.01, max: 0.001}}"),
    ("has no logarithm", "{learning_rate: {min: 0, max: 0.1, scale: log}}"),
    ("expected a finite number (above 0)", "{learning_rate: {min: -1, max: 0.1}}"),
    ("expected a whole number", "{warmup_steps: {min: 0.5, max: 30}}"),
    ("expected one of adamw, lamb", "{optimizer: [adamw, sgd]}"),
    ("optimizer is 'adamw', not a number", "{optimizer: {min: 0, max: 1}}"),
    ("with global_batch 9: train.loop: ", "{global_batch: {min: 8, max: 64}}"),
    ("nearest valid name: workload_config_dim", "{workload_config_dimm: [128]}"),
    ("does not contain workload.config.dim, which is 128",
     "{workload_config_dim: {min: 256, max: 512}}"),
    ("with workload_config_dim 65: workload.config: ",
     "{workload_config_dim: {min: 64, max: 128}}"),
    ("with workload_config_dim 96, workload_config_heads 64: workload.config: ",
     "{workload_config_dim: [96, 128], workload_config_heads: [4, 8, 64]}"),
    ("workload.config.hidden_dim is None; a search varies numbers, words, true and false",
     "{workload_config_hidden_dim: [64, 128]}"),
    ("with which the samples are packed before the search",
     "{workload_config_context_length: [64, 128]}"),
    ("does not change the weights", "{log_interval: {min: 1, max: 20}}"),
    ("the length of training", "{max_steps: {min: 100, max: 400}}"),
    ("strategy grid takes lists of values only", f"{{{RATE}}}, strategy: grid"),
    ("trainings: is 10, but the grid has 3", "{seed: [0, 1, 2]}, strategy: grid"),
    ("stops trainings", f"{{{RATE}}}, strategy: hyperband, stop_early: true"),
    ("more than trainings 2", f"{{{RATE}}}, trainings: 2, parallel: 3"),
    ("are compared by validation loss", f"{{{RATE}}}, metric: loss"),
    ("1 to 30 different values", "{seed: [0, 0]}"),
]  # fmt: skip
SLOPE = "{slope: {min: 0.1, max: 3}}, trainings: 3"
PRINTED = r"train.metrics={loss: 'loss=(\S+)'}"
TUNED_SCRIPT = [
    ("one of train.metrics: none is set", SLOPE),
    ("one of train.metrics: loss", f"{SLOPE}, metric: lost", PRINTED),
    ("needs the number of lines", f"{SLOPE}, metric: loss, strategy: hyperband", PRINTED),
    ("nearest valid name: slope", "{slop: [1, 2]}, trainings: 2", PRINTED),
]

WEB = "{uri: s3://corpus/raw/web/, weight: 0.7}"
CODE = "{uri: s3://corpus/raw/code/, weight: 0.3}"
INPUTS = [
    ("data.inputs.1.weight: is 0", WEB, "{uri: s3://corpus/raw/code/, weight: 0}"),
    ("data.inputs.1.weight: is nan", WEB, "{uri: s3://corpus/raw/code/, weight: .nan}"),
    ("data.inputs.1.weight: is inf", WEB, "{uri: s3://corpus/raw/code/, weight: .inf}"),
    ("weights: code has 1e-06, less", WEB, "{uri: s3://corpus/raw/code/, weight: 1.0e-6}"),
    ("inputs.1.weight: is missing, and no change", WEB, "{uri: s3://corpus/raw/code/}"),
    ("data.inputs.0.weight: is missing", "{uri: s3://abc/d}"),
    ("inputs.1: is called web, as inputs.0 is; set another name",
     WEB, "{uri: s3://other/raw/web, weight: 1}"),
    ("inputs.1: is called WEB", WEB, "{uri: s3://other/x, name: WEB, weight: 1}"),
    ("data.inputs.1.name: is '_x'", WEB, "{uri: s3://other/x, name: _x, weight: 1}"),
    ("ends in no folder that can be a name", WEB, "{uri: s3://other/a.b/, weight: 1}"),
    ("inputs.1.uri: s3://corpus/raw/web/deep/ and inputs.0.uri s3://corpus/raw/web/ overlap",
     WEB, "{uri: s3://corpus/raw/web/deep/, weight: 1}"),
    ("overlap", WEB, "{uri: s3://corpus/raw/web, name: w, weight: 1}"),
    ("overlap", "{uri: s3://corpus/web, weight: 1}", "{uri: s3://corpus/web-old, weight: 1}"),
    ("data.inputs: is [{'uri", *(f"{{uri: s3://corpus/{n}/, weight: 1}}" for n in "abcdefghi")),
]  # fmt: skip
CHANGES = [
    ("data.weight_changes.0.step: is 0", "{step: 0, weights: {web: 1}}"),
    ("after step 5 name wbe, which is not one of inputs: web", "{step: 5, weights: {wbe: 1}}"),
    ("data.weight_changes.0.weights.web: is 0", "{step: 5, weights: {web: 0}}"),
    ("weights after step 5: code has 1e-09", "{step: 5, weights: {web: 1, code: 1.0e-9}}"),
    ("do not ascend", "{step: 5, weights: {web: 1}}, {step: 5, weights: {code: 1}}"),
]
SHARDS = ("data={shards: s3://corpus/packed/}", "shard={}")
VPC = "aws.vpc={subnets: [subnet-0123456789], security_groups: [sg-0123456789]}"
FSX = (VPC, "train.fsx={file_system_id: fs-0123456789, directory_path: /abcdefgh/data}",
       "train.input_mode=FSxLustre")  # fmt: skip
DATA = [
    ("data: input, inputs, shards: none is set", "data={}"),
    ("data: input, inputs, shards: input and inputs are set",
     f"data={{input: s3://abc/d, inputs: [{WEB}]}}"),
    ("input and shards are set", "data={shards: s3://corpus/x, input: s3://corpus/raw/}"),
    ("inputs and shards are set", "data={shards: s3://corpus/x, inputs: [{uri: s3://corpus/raw/}]}"),
    ("data.example: stdlib is for input", f"data={{inputs: [{WEB}], example: stdlib}}"),
    ("example: stdlib is for input; remove it", "data={shards: s3://corpus/x, example: stdlib}"),
    ("data.weight_changes: need inputs",
     "data={input: s3://abc/d, weight_changes: [{step: 1, weights: {d: 1}}]}"),
    ("data.shards: is '/local/packed'", "data={shards: /local/packed}", "shard={}"),
    ("shard.key: applies only to raw data", *SHARDS, "shard.key=repository"),
    ("train.fsx: mirrors the output of the shard step", *SHARDS, *FSX),
    ("'InputUri' is not a parameter that a run may change",
     f"data={{inputs: [{WEB}, {CODE}]}}", "pipeline.overridable=[InputUri]"),
]  # fmt: skip


def on(name: str = "corpus", kind: str = "EFS", path: str = "/", system: str = "fs-0123456789"):
    source = f"{{file_system_id: {system}, type: {kind}, directory_path: {path}}}"
    return f"train.file_systems={{{name}: {source}}}"


MOUNTED = [
    ("train.file_systems.corpus: a file system is mounted through a VPC; set aws.vpc", on()),
    ("directory_path: is '/'; a path on FSx for Lustre begins", VPC, on(kind="FSxLustre")),
    ("train.file_systems.corpus.type: is 'NFS'", VPC, on(kind="NFS")),
    ("train.file_systems.corpus.directory_path: is 'corpora'", VPC, on(path="corpora")),
    ("train.file_systems.corpus.file_system_id: is 'corpora'", VPC, on(system="corpora")),
    ("file_systems.training: is also a name in channels", VPC, on("training")),
    ("'code' is not a channel's name", VPC, on("code")),
    ("kind: unknown field", VPC, on().replace("type", "kind")),
    ("train.fsx: mounts the shards, and without a", *FSX),
]


def rows() -> Iterator[Any]:
    """Yield each recipe with what is said of it, and the overrides that make it wrong."""
    yield from ((path, *row) for path, some in FIELDS.items() for row in some)
    live = "deploy.endpoint=live"
    yield from ((path, row[0], live, *row[1:]) for path, some in DEPLOYED.items() for row in some)
    yield from ((LAPTOP, said, f"packages={given}") for said, given in PACKAGES)
    yield from ((LAPTOP, said, f"tune={{ranges: {given}}}") for said, given in TUNE)
    for said, given, *more in TUNED_SCRIPT:
        yield SCRIPT, said, f"tune={{ranges: {given}}}", *more
    for said, *given in INPUTS:
        yield LAPTOP, said, f"data={{inputs: [{', '.join(given)}]}}"
    for said, given in CHANGES:
        yield LAPTOP, said, f"data={{inputs: [{WEB}, {CODE}], weight_changes: [{given}]}}"
    yield from ((LAPTOP, *row) for row in DATA)
    yield from ((SCRIPT, *row) for row in MOUNTED)


@pytest.mark.parametrize(
    ("path", "said", "overrides"),
    [pytest.param(path, said, sets, id=f"{path.stem} {sets[-1]}") for path, said, *sets in rows()],
)
def test_what_cannot_be_meant_is_refused_by_its_field(path, said: str, overrides: list[str]):
    with pytest.raises(RecipeError) as refused:
        load_recipe(path, overrides)
    told = str(refused.value)
    assert all(part in told for part in said.split(" … ")) and "secret@" not in told, told
