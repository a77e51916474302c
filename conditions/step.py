"""The condition that reads the gate's verdict, and the steps that follow from it."""

from collections.abc import Sequence

from sagemaker.core.workflow.conditions import ConditionEquals
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.steps import ProcessingStep, Step


def make_verdict_condition(
    gate: ProcessingStep, pass_steps: Sequence[Step], visible: Sequence[str] = ()
) -> ConditionStep:
    """Return the condition step that runs ``pass_steps`` if the verdict in gate.json is ``pass``,
    and otherwise fails with the gate's reason.

    The conditions compare words only: ``conditions.verdict`` has already turned anything missing,
    not finite or malformed into ``reject`` with a reason.

    Args:
        visible: kinds of checks that get a condition of their own, so that people who look at the
            step see their outcomes. They do not change the decision, because the verdict is
            ``pass`` only if all of them pass. They are conditions of the same step because a
            condition step cannot be nested in another.
    """

    def read(path: str) -> JsonGet:  # allowed in every type of step since sagemaker-python-sdk#2506
        """Return a reference to the value at ``path`` in gate.json."""
        return JsonGet(step_name=gate.name, property_file="Gate", json_path=path)

    report = gate.properties.ProcessingOutputConfig.Outputs["gate"].S3Output.S3Uri
    # The report's address comes first, because a step's FailureReason is cut after 1,024
    # characters.
    message = ["The gate rejected the model (", report, "/gate.json): ", read("reason")]
    fail_step = FailStep(
        name="Rejected",
        display_name="Rejected by the gate",
        description="Ends the run with the reason why the model is not registered",
        error_message=Join(on="", values=message),
    )
    passes = [read(f"kinds.{kind}") for kind in visible]
    return ConditionStep(
        name="Verdict",
        display_name="Does the gate pass the model?",
        description="Reads the verdict in gate.json",
        conditions=[
            ConditionEquals(left=word, right="pass") for word in [read("verdict"), *passes]
        ],
        if_steps=list(pass_steps),
        else_steps=[fail_step],
    )
