"""The SageMaker SDK's session that compiles without AWS: it remembers what would be uploaded."""

from functools import cache
from pathlib import Path

import boto3
import botocore.loaders
import botocore.session
from jsonschema.validators import validator_for
from sagemaker.core.config import config, config_manager
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.mlops.workflow import steps

from pipelines.compile.compilation import Asset, read_folder


class _ConfigValidation:
    """Replace ``jsonschema.validate`` for the SDK's defaults, without proving the SDK's schema each
    time.

    The SDK validates its defaults at every look-up, 78 times a definition, and each time proves
    its own constant schema against the meta-schema: 95 % of the time of building a definition.
    """

    @staticmethod
    def validate(instance: dict, schema: dict) -> None:
        validator_for(schema)(schema).validate(instance)


config.jsonschema = config_manager.jsonschema = _ConfigValidation

_loader = cache(botocore.loaders.create_loader)


def _create_loader(search_path_string: str | None = None) -> botocore.loaders.Loader:
    """Return one loader of the services' models for all sessions, which caches what it has read.

    The SDK makes a session for every step, and each would read megabytes of models again: two
    thirds of the time of building a definition.
    """
    return _loader(search_path_string)


botocore.loaders.create_loader = botocore.session.create_loader = _create_loader


class _LocalClient(steps.LocalSagemakerClient):
    """The client of local mode without a session of its own.

    The SDK makes one for each processing step to ask for the name of a method: a third of the
    processor time of building a definition went into its sessions and clients.
    """

    def __init__(self) -> None:
        pass


steps.LocalSagemakerClient = _LocalClient


class CompileSession(PipelineSession):
    """Collects what would be uploaded as assets, named by their content.

    The SDK puts code and drivers of a training job under a timestamped key, and uploads them at
    every ``definition()``; here the key follows from the content, and nothing is uploaded.
    """

    def __init__(self, region: str, bucket: str, prefix: str) -> None:
        # Keys that no service accepts: a call that slipped through could do nothing.
        boto_session = boto3.Session(
            region_name=region, aws_access_key_id="offline", aws_secret_access_key="offline"
        )
        super().__init__(boto_session=boto_session, default_bucket=bucket)
        self.bucket = bucket
        self.prefix = prefix
        self.assets: dict[str, Asset] = {}

    def default_bucket(self) -> str:
        """Return the bucket's name; unlike the SDK's own, it does not create the bucket."""
        return self.bucket

    def add(self, files: dict[str, bytes]) -> str:
        """Remember a folder as an asset and return its S3 URI."""
        asset = Asset(self.bucket, f"{self.prefix}/code", files)
        self.assets[asset.key] = asset
        return asset.uri

    def extend_folder(self, uri: str, files: dict[str, bytes]) -> str:
        """Remember a folder that holds the files of another one, and further ones."""
        [folder] = [asset for asset in self.assets.values() if asset.uri == uri]
        return self.add({**folder.files, **files})

    def upload_data(self, path: str, *_: object, **__: object) -> str:
        """Remember the folder instead of uploading it; the SDK calls this for its drivers."""
        return self.add(read_folder(Path(path)))
