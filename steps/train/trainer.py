"""The SDK's ModelTrainer, as the train step needs it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import SourceCode
from sagemaker.train.distributed import DistributedConfig

from trainyard.common.errors import DefinitionError

SCRIPT = "/opt/ml/input/data/sm_drivers/sm_train.sh"
COMMAND = f"chmod +x {SCRIPT} && exec /bin/bash {SCRIPT}"


class OfflineTrainer(ModelTrainer):
    """A ModelTrainer whose requests can be built with no AWS in reach."""

    def _resolve_staging_bucket(self) -> tuple[str, str | None]:
        """The session's bucket, without asking IAM whether the role may write to it (#6019)."""
        return self.sagemaker_session.default_bucket(), None


class SignalledTrainer(OfflineTrainer):
    """One whose driver is the container's first process, which SageMaker sends SIGTERM to.

    The SDK's command leaves two shells before it, and those keep the signal to themselves
    (sagemaker-training-toolkit #125, #173). So each hands its place on, by ``exec``.
    """

    def _prepare_train_script(
        self,
        tmp_dir: TemporaryDirectory,
        source_code: SourceCode,
        distributed: DistributedConfig | None = None,
    ) -> None:
        super()._prepare_train_script(tmp_dir, source_code, distributed)
        path = Path(tmp_dir.name) / Path(SCRIPT).name
        before, call, after = path.read_text(encoding="utf-8").partition(
            "$SM_PYTHON_CMD /opt/ml/input/data/sm_drivers/distributed_drivers/"
        )
        if not call:
            raise DefinitionError("the SDK's sm_train.sh starts no driver; use sagemaker 3.27.0")
        path.write_text(f"{before}exec {call}{after}", encoding="utf-8")

    def _create_training_job_args(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        request = super()._create_training_job_args(*args, **kwargs)
        request["AlgorithmSpecification"]["ContainerArguments"] = ["-c", COMMAND]
        return request
