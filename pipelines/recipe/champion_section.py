"""The recipe's section ``champion``: how a model that another pipeline registered is scored."""

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from steps.config import Section
from training.starting_weights import MODEL_PACKAGE
from training.workloads import WorkloadSpec
from trainyard.common.errors import nearest


class Champion(Section):
    """A model package of the group that another pipeline registered, of any framework: while it is
    the champion, it is scored by ``scores`` or ``script``. Any other champion is scored as ever.
    """

    model_package: str = Field(
        pattern=MODEL_PACKAGE,
        examples=["arn:aws:sagemaker:us-east-1:111122223333:model-package/my-models/1"],
    )
    """ARN of the model package."""

    scores: str | None = None
    """Table of its scores, an S3 URI or a file relative to the recipe: for a workload the raw
    records with a further column probability, for train.script the rows of evaluate.script."""

    script: str | None = None
    """Its inference script (.py), relative to the recipe, by the conventions of AWS's inference
    toolkits: model_fn and predict_fn, and input_fn and output_fn where it has them. It is given the
    package's model, and the test split's records."""

    source: str | None = None
    """Folder that is sent with the script, relative to the recipe; default: the script's own."""

    source_mb: float = Field(default=20, gt=0)
    """Maximum size of that folder in MB; one file may have a quarter of it."""

    requirements: str | None = None
    """Requirements file of the script, relative to the recipe; default: the folder's own
    requirements.txt, if it has one."""

    content_type: Literal["text/csv", "application/jsonlines", "application/json"] = "text/csv"
    """Type of the script's requests. text/csv: many records, without a header.
    application/jsonlines: many, an object a line. application/json: one record, an object."""

    columns: tuple[str, ...] = ()
    """Columns of a request, in order; default: the workload's categories, then its numbers."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.scores is None) == (self.script is None):
            raise ValueError("set either scores, a table, or script, its inference script")
        if self.script is not None and not self.script.endswith(".py"):
            raise ValueError(f"script: {self.script!r} must end in .py")
        for name in ("source", "requirements", "columns"):
            if self.script is None and getattr(self, name):
                raise ValueError(f"{name}: belongs to a script; remove it")
        return self


def check(champion: Champion, workload: str, spec: WorkloadSpec, config: BaseModel | None) -> None:
    """Check that the evaluation can score such a champion.

    Args:
        workload: name of the workload; ``config``: its settings, None where a script is evaluated.

    Raises:
        ValueError: names the field.
    """
    if config is None:
        if champion.script is not None:
            raise ValueError(
                "champion.script: evaluate.script scores every champion, of any framework, from "
                "the files in $SM_MODEL_DIR; let it load this one, or set champion.scores"
            )
        return
    if not spec.takes_probabilities:
        raise ValueError(
            f"champion: workload {workload} cannot score a model of another pipeline; it needs "
            "one of probabilities (tabular), or a train.script"
        )
    known = [*getattr(config, "categories", ()), *getattr(config, "numbers", ())]
    for name in champion.columns:
        if name not in known:
            raise ValueError(
                f"champion.columns: {name!r} is not in the shards; {nearest(name, known)}. A "
                "champion that needs more takes part by champion.scores"
            )
