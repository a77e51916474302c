"""Import this before the SageMaker SDK: it makes the SDK deterministic, offline and quiet.

The SDK would read defaults from files of the machine (they could change the definition), fail on
import without a region, ask IAM about roles (#6019), and send telemetry with the account's id.
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

# The SDK logs at every step how it compiles; none of it is about the recipe. Its own
# basicConfig(INFO) does nothing once the root logger has a handler.
logging.basicConfig(level=logging.ERROR)
for handler in logging.getLogger().handlers:
    handler.setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message="Running within a PipelineSession")

# Its import makes some million objects, and all of them stay: looking through them for garbage
# again and again is a quarter of the time of a verb. ``imported`` sets it going again.
gc.disable()


def imported() -> None:
    """Call this when the SDK is imported: collect garbage again, but not among what is there."""
    gc.freeze()
    gc.enable()
