"""The condition that reads the gate's verdict, and the steps that follow from it."""

from collections.abc import Sequence

from sagemaker.core.workflow.conditions import ConditionEquals
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.steps import ProcessingStep, Step


def verdict_condition(
    gate: ProcessingStep, pass_steps: Sequence[Step], visible: Sequence[str] = ()
) -> ConditionStep:
    """Return the condition: the steps ``pass_steps`` if gate.json says ``pass``, else fail with its
    reason.

    Only words are compared: ``conditions.verdict`` has turned anything missing, not finite or
    malformed into ``reject`` with a reason. ``visible``: kinds of checks that get a condition of
    their own beside the verdict's, for people who look at the step; they decide nothing more, for
    the verdict is ``pass`` only when all of them are. They are conditions of one step, since a
    condition step cannot be nested in another.
    """

    def read(path: str) -> JsonGet:  # allowed in every type of step since #2506
        return JsonGet(step_name=gate.name, property_file="Gate", json_path=path)

    report = gate.properties.ProcessingOutputConfig.Outputs["gate"].S3Output.S3Uri
    # The address first: a step's FailureReason is cut after 1,024 characters.
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
