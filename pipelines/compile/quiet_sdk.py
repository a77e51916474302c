"""Import this before the SageMaker SDK: it makes the SDK deterministic, offline and quiet.

Without it, the SDK reads defaults from files of the machine (they could change the definition),
fails on import without a region, asks IAM about roles (#6019), and sends telemetry with the
account's id.

This is a separate module because it has to be imported before the SDK.
"""

import gc
import logging
import os
import warnings
from pathlib import Path

DEFAULTS = str(Path(__file__).parent / "sdk_defaults.yaml")

os.environ["SAGEMAKER_ADMIN_CONFIG_OVERRIDE"] = DEFAULTS
os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"] = DEFAULTS
os.environ["SAGEMAKER_VALIDATE_ROLE"] = "false"
os.environ.setdefault("AWS_DEFAULT_REGION", os.environ.get("AWS_REGION", "us-east-1"))

# The SDK logs how it compiles each step, which says nothing about the recipe. Its own
# basicConfig(INFO) does nothing once the root logger has a handler. Existing handlers are kept.
if not logging.getLogger().handlers:
    _handler = logging.StreamHandler()
    _handler.setLevel(logging.ERROR)
    logging.basicConfig(level=logging.ERROR, handlers=[_handler])
warnings.filterwarnings("ignore", message="Running within a PipelineSession")

# The import creates about a million objects, and all of them stay. Looking for garbage among them
# takes a quarter of a command's time. ``freeze_imports`` turns the collector on again.
gc.disable()


def freeze_imports() -> None:
    """Turn garbage collection on again, but exclude the objects created so far. Call this after
    importing the SDK.
    """
    gc.freeze()
    gc.enable()
