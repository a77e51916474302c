"""Rules about whether machines and image suit the way in which Trainyard's loop shares the work."""

from collections.abc import Iterator

from pydantic import ValidationError

from pipelines.rules.trainyard_jobs import (
    count_ranks,
    parse_loop_settings,
    read_settings,
    select_our_trainings,
)
from steps.train.config import LAUNCHERS, explain_missing_library, explain_unfit_machines
from training.strategy_table import explain_unfit_torch
from trainyard.foresight.cloud_machines import find_gpu
from trainyard.foresight.layouts import BEFORE_AMPERE
from trainyard.validate.rules.images import IMAGE, match_aws_image, parse_torch_version
from trainyard.validate.rules.job_view import Job, join_member, to_known_text
from trainyard.validate.rules.rule import Violation, rule


@rule(
    "error",
    select=select_our_trainings,
    reason="the training refuses its settings at its start, after waiting for machines",
    fix="correct the hyperparameter",
    source="training/config.py",
)
def training_settings(job: Job) -> Iterator[Violation]:
    try:
        parse_loop_settings(job)
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(map(str, problem["loc"]))
            field = (
                join_member(job.hyperparameters_path, name) if name else job.hyperparameters_path
            )
            value = f"is {problem['input']!r}: " if name else ""
            yield job.make_violation(field, value + problem["msg"].removeprefix("Value error, "))


@rule(
    "error",
    select=select_our_trainings,
    reason="the strategy's library does not support these machines: the training fails at its "
    "start",
    fix="choose an instance type that the strategy supports, or strategy ddp or fsdp",
    source="steps/train/config.py: AWS's support pages of SMDDP and SMP v2; "
    "deep-learning-containers#4395 #4988, sagemaker-training-toolkit#192, #3645",
)
def strategy_on_wrong_machine(job: Job) -> Iterator[Violation]:
    strategy, machine = to_known_text(job.hyperparameters.get("strategy")), job.machine
    if strategy and machine:
        launcher = LAUNCHERS.get(strategy, "torchrun")
        if refusal := explain_unfit_machines(strategy, launcher, machine.name):
            yield job.make_violation(job.build_resource_path("InstanceType"), refusal)


@rule(
    "error",
    select=select_our_trainings,
    reason="the image lacks the strategy's library: the training fails at its start",
    fix="choose an image that has it, or strategy ddp or fsdp",
    source="steps/train/config.py: release notes of SMDDP and SMP v2; "
    "deep-learning-containers#4395 #4988",
)
def strategy_without_library(job: Job) -> Iterator[Violation]:
    strategy, image = to_known_text(job.hyperparameters.get("strategy")), match_aws_image(job.image)
    if not strategy or not image:
        return
    version = (image["tag"] or "").split("-")[0]
    refusal = (
        f"{image['repository']}:{image['tag']} has no SMP library; its images are those of "
        "smdistributed-modelparallel"
        if strategy == "smp"
        else explain_missing_library(strategy, version, None)
    )
    if refusal:
        yield job.make_violation(job.image_path, refusal)


@rule(
    "error",
    select=select_our_trainings,
    reason="the training refuses this image at its start, after waiting for machines",
    fix="use an image with a newer PyTorch, or change the setting",
    source="training/strategy_table.py: the minimum torch version of each strategy, schedule and "
    "option",
)
def image_with_older_torch(job: Job) -> Iterator[Violation]:
    config, version = read_settings(job), parse_torch_version(job.image)
    if config and version and (refusal := explain_unfit_torch(config, version)):
        yield job.make_violation(job.image_path, refusal)


@rule(
    "error",
    select=select_our_trainings,
    reason="an image with the SMP library contains an older PyTorch of its own",
    fix="set strategy to smp, or use AWS's pytorch-training image",
    source="developer guide, distributed-model-parallel-support-v2: images for SMP v2 alone",
)
def smp_image_without_smp(job: Job) -> Iterator[Violation]:
    image = IMAGE.fullmatch(job.image or "")
    strategy = to_known_text(job.hyperparameters.get("strategy"))
    smp = image and image["repository"] == "smdistributed-modelparallel"
    if smp and strategy and strategy not in ("smp", "smddp"):  # the image also has SMDDP
        yield job.make_violation(job.image_path, f"strategy is {strategy}, the image is SMP's")


@rule(
    "error",
    select=select_our_trainings,
    reason="the training refuses this layout at its start, after waiting for machines",
    fix="change the batch, the degrees of parallelism or the number of machines",
    source="training/config.py (TrainConfig.micro_batches)",
)
def world_does_not_fit(job: Job) -> Iterator[Violation]:
    config, ranks = read_settings(job), count_ranks(job)
    if config and ranks:
        try:
            config.count_micro_batches(ranks)
        except ValueError as error:
            nodes = f"{job.nodes} × {job.instance_type}: "
            yield job.make_violation(job.hyperparameters_path, nodes + str(error))


@rule(
    "warning",
    select=select_our_trainings,
    reason="every matrix product then waits for the network between the nodes",
    fix="keep tensor_parallel within one node's GPUs; more ranks go to pipeline_parallel or fsdp",
    source="Shoeybi et al. 2019, Megatron-LM; Narayanan et al. 2021: tensor parallel in a node",
)
def tensor_parallel_across_nodes(job: Job) -> Iterator[Violation]:
    config, machine = read_settings(job), job.machine
    node = (job.ranks_per_node or machine.accelerators) if machine else None
    if config and node and job.nodes > 1 and node % config.tensor_parallel:
        problem = f"tensor_parallel {config.tensor_parallel}, a node has {node} ranks"
        yield job.make_violation(join_member(job.hyperparameters_path, "tensor_parallel"), problem)


@rule(
    "warning",
    select=select_our_trainings,
    reason="GPUs before Ampere (V100, T4) have no bfloat16: torch emulates it, without tensor "
    "cores",
    fix="set precision to float16, which scales the loss, or use a later GPU",
    source="NVIDIA A100 Tensor Core GPU Architecture, 2020, table 4; "
    "torch.cuda.is_bf16_supported(including_emulation=False)",
)
def bfloat16_before_ampere(job: Job) -> Iterator[Violation]:
    config, gpu = read_settings(job), find_gpu(job.machine) if job.machine else None
    if config and config.precision == "bfloat16" and gpu and gpu.name in BEFORE_AMPERE:
        field = join_member(job.hyperparameters_path, "precision")
        yield job.make_violation(field, f"precision bfloat16 on {job.instance_type}, a {gpu.name}")


@rule(
    "error",
    select=select_our_trainings,
    reason="GPUs before compute capability 8.9 have no float8: the training refuses it at its "
    "start",
    fix="set float8 to none, or use a GPU that has it (L4, L40S, H100 and later)",
    source="training/strategies/float8.py; NVIDIA Ada GPU Architecture, 2022",
)
def float8_without_products(job: Job) -> Iterator[Violation]:
    config, gpu = read_settings(job), find_gpu(job.machine) if job.machine else None
    if config and config.float8 != "none" and gpu and not gpu.fp8_tflops:
        field = join_member(job.hyperparameters_path, "float8")
        yield job.make_violation(
            field, f"float8 {config.float8} on {job.instance_type}, a {gpu.name}"
        )


@rule(
    "warning",
    select=select_our_trainings,
    reason="FastFile streams objects from front to back; a uniform shuffle seeks for every sample",
    fix="set shuffle to windowed, or the channel's input mode to File",
    source="developer guide, model-access-training-data: FastFile works best read sequentially",
)
def uniform_shuffle_over_fastfile(job: Job) -> Iterator[Violation]:
    config = read_settings(job)
    for index, channel in job.iter_items("InputDataConfig"):
        mode = channel.get("InputMode") or job.get("AlgorithmSpecification.TrainingInputMode")
        train = channel.get("ChannelName") == "train"
        if config and train and mode == "FastFile" and config.shuffle == "uniform":
            yield job.make_violation(
                f"InputDataConfig[{index}].InputMode",
                "FastFile with hyperparameter shuffle uniform",
            )


@rule(
    "error",
    select=select_our_trainings,
    reason="every rank reads from the whole dataset: on each node the other nodes' shards are "
    "missing",
    fix="set S3DataDistributionType to FullyReplicated",
    source="training/data: all ranks share one order of samples",
)
def sharded_channel_of_ours(job: Job) -> Iterator[Violation]:
    for index, channel in job.iter_items("InputDataConfig"):
        source = job.document.resolve_value(channel.get("DataSource"))
        s3 = source.get("S3DataSource") if isinstance(source, dict) else None
        is_own_channel = channel.get("ChannelName") in ("train", "validation") and job.nodes > 1
        sharing = s3.get("S3DataDistributionType") if isinstance(s3, dict) else None
        if is_own_channel and sharing == "ShardedByS3Key":
            field = f"InputDataConfig[{index}].DataSource.S3DataSource.S3DataDistributionType"
            yield job.make_violation(field, f"ShardedByS3Key on {job.nodes} nodes")
