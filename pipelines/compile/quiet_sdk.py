"""Import this before the SageMaker SDK: it makes the SDK deterministic, offline and quiet.

The SDK would read defaults from files of the machine (they could change the definition), fail on
import without a region, ask IAM about roles (#6019), and send telemetry with the account's id.

Apart: it has to be imported first.
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

# The SDK logs at every step how it compiles; nothing of that concerns the recipe. Its own
# basicConfig(INFO) does nothing once the root logger has a handler. Somebody else's stays as it is.
if not logging.getLogger().handlers:
    _handler = logging.StreamHandler()
    _handler.setLevel(logging.ERROR)
    logging.basicConfig(level=logging.ERROR, handlers=[_handler])
warnings.filterwarnings("ignore", message="Running within a PipelineSession")

# Its import creates about a million objects, and all of them stay: collecting garbage among them
# takes a quarter of a verb's time. ``freeze_imports`` turns the collection on again.
gc.disable()


def freeze_imports() -> None:
    """Collect garbage again, except among the objects created so far; call this after importing the
    SDK.
    """
    gc.freeze()
    gc.enable()
