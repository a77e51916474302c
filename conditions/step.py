"""The condition that reads the gate's verdict, and what follows from it."""

from sagemaker.core.workflow.conditions import ConditionEquals
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.steps import ProcessingStep, Step


def verdict_condition(gate: ProcessingStep, register: Step) -> ConditionStep:
    """``register`` when gate.json says ``pass``; else the run fails with the gate's own reason.

    Only the one word is compared: whatever is missing, not finite or malformed has become
    ``reject`` with a reason before it comes here (``conditions.verdict``).
    """

    def read(path: str) -> JsonGet:  # allowed in every type of step since #2506
        return JsonGet(step_name=gate.name, property_file="Gate", json_path=path)

    rejected = FailStep(
        name="Rejected",
        display_name="Rejected by the gate",
        description="Ends the run with the reason why the model is not registered",
        error_message=Join(on="", values=["The gate rejected the model: ", read("reason")]),
    )
    return ConditionStep(
        name="Verdict",
        display_name="Does the gate pass the model?",
        description="Reads the verdict in gate.json",
        conditions=[ConditionEquals(left=read("verdict"), right="pass")],
        if_steps=[register],
        else_steps=[rejected],
    )
