"""The channels of a training job: what the shard step made, or any prefix in S3."""

from collections.abc import Iterator

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.mlops.workflow.steps import ProcessingStep
from sagemaker.train.configs import Channel, DataSource, FileSystemDataSource, S3DataSource

from steps.processing import output_uri
from steps.train.config import TrainStepConfig
from training.start import CHANNEL
from trainyard.common.errors import DefinitionError


def s3_channel(name: str, uri: str | PipelineVariable, input_mode: str) -> Channel:
    """Every node gets all of the prefix. ``Channel``, not ``InputData``: the latter forces File
    over FastFile."""
    return Channel(
        channel_name=name,
        input_mode=input_mode,
        data_source=DataSource(
            s3_data_source=S3DataSource(
                s3_data_type="S3Prefix",
                s3_uri=uri,
                s3_data_distribution_type="FullyReplicated",
            )
        ),
    )


def start_channel(config: TrainStepConfig) -> Iterator[Channel]:
    """What the weights begin with, if not fresh ones."""
    if config.start_from is None:
        return
    if config.start_from.uri is None:
        raise DefinitionError(
            f"train.start_from.model_package {config.start_from.model_package}: its model.tar.gz "
            "was not looked up; set train.start_from.model to its S3 URI"
        )
    yield s3_channel(CHANNEL, config.start_from.uri, "File")


def split_channel(config: TrainStepConfig, shard: ProcessingStep, split: str) -> Channel:
    """The shards of ``split``, from S3 or from the mounted file system that mirrors it."""
    if config.fsx:
        return Channel(
            channel_name=split,
            input_mode="File",
            data_source=DataSource(
                file_system_data_source=FileSystemDataSource(
                    file_system_id=config.fsx.file_system_id,
                    file_system_type="FSxLustre",
                    file_system_access_mode="ro",
                    directory_path=_lustre_path(config.fsx.directory_path, split),
                )
            ),
        )
    return s3_channel(split, output_uri(shard, split), config.input_mode)


def _lustre_path(folder: str, split: str) -> PipelineVariable:
    """Where the association shows ``<root>/runs/<execution id>/shard/<split>``."""
    execution = ExecutionVariables.PIPELINE_EXECUTION_ID
    return Join(on="/", values=[f"{folder}/runs", execution, "shard", split])
