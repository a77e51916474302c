"""DDP with the collectives of SageMaker's distributed data parallelism library (SMDDP).

It follows "Use the SMDDP library in your PyTorch training script" (SageMaker Developer Guide,
data-parallel-modify-sdp-pt.html): the import registers the backend. The guide also says that with
DDP neither further process groups nor other backends can be used at the same time.
"""

from training.strategies.ddp import Ddp
from trainyard.common.errors import TrainingError


class Smddp(Ddp):
    """DDP with another backend for the process group."""

    @staticmethod
    def register_backend() -> str:
        """Register SMDDP's backend by importing it, and return its name."""
        try:
            import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401  registers smddp
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("smdistributed"):
                raise
            raise TrainingError(
                "strategy smddp: the package smdistributed.dataparallel is not in the image; AWS's "
                "SMP images have it: name one in images.training, or set strategy to ddp"
            ) from None
        return "smddp"
