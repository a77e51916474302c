"""What each step type does when its turn comes, and what its properties are read from."""

from collections.abc import Callable

from trainyard.emulator.api import ApiError
from trainyard.emulator.dag.definition import Step
from trainyard.emulator.dag.execution import Execution, StepFailed, StepStopped
from trainyard.emulator.jobs.jobs import Jobs

Forward = Callable[[str, dict], dict]
Note = Callable[[dict], None]


class StepWork:
    """The :class:`trainyard.emulator.dag.execution.Work` of all step types but Condition."""

    def __init__(self, jobs: Jobs, forward: Forward) -> None:
        self._jobs = jobs
        self._forward = forward
        self._run = {
            "Training": self._job,
            "Processing": self._job,
            "RegisterModel": self._register,
            "Model": self._model,
            "Fail": self._fail,
        }

    def run(self, step: Step, arguments: dict, execution: Execution, note: Note) -> None:
        self._run[step.type](step, arguments, execution, note)

    def describe(self, metadata: dict) -> dict:
        kind, body = next(iter(metadata.items()))
        name = body.get("Arn", "").rpartition("/")[2]
        if kind in ("TrainingJob", "ProcessingJob"):
            answer = self._jobs.describe(kind.removesuffix("Job"), name)
            return answer | {f"{kind}Name": name}
        if kind == "RegisterModel":
            return self._forward("DescribeModelPackage", {"ModelPackageName": body["Arn"]})
        if kind == "Model":
            return self._forward("DescribeModel", {"ModelName": name})
        return body

    def outputs(self, metadata: dict) -> list[str]:
        arns = [body["Arn"] for kind, body in metadata.items() if kind.endswith("Job")]
        return [uri for arn in arns for uri in self._jobs.outputs(arn.rpartition("/")[2])]

    def stop(self, metadata: dict) -> None:
        for kind, body in metadata.items():
            if kind.endswith("Job"):
                self._stop(kind.removesuffix("Job"), body["Arn"].rpartition("/")[2])

    def _stop(self, kind: str, name: str) -> None:
        try:
            self._jobs.stop(kind, name)
        except ApiError as error:  # it has ended meanwhile
            if error.code != "ValidationException":
                raise

    def _job(self, step: Step, arguments: dict, execution: Execution, note: Note) -> None:
        kind = step.type
        name = execution.steps[step.name]["job"]
        try:
            job = self._jobs.create(kind, arguments | {f"{kind}JobName": name})
        except ApiError as error:
            raise _refused(f"Create{kind}Job", error) from None
        note({f"{kind}Job": {"Arn": job.arn}})
        job.wait()
        if job.status == "Failed":
            raise StepFailed(job.record["FailureReason"])
        if job.status == "Stopped" and "FailureReason" in job.record:
            raise StepFailed(job.record["FailureReason"])  # MaxRuntimeInSeconds
        if job.status == "Stopped":
            raise StepStopped

    def _register(self, step: Step, arguments: dict, execution: Execution, note: Note) -> None:
        """CreateModelPackage; as on AWS the step makes a missing group itself."""
        try:
            if group := arguments.get("ModelPackageGroupName"):
                self._make_group(group.rpartition("/")[2])
            answer = self._forward("CreateModelPackage", arguments)
        except ApiError as error:
            raise _refused("CreateModelPackage", error) from None
        note({"RegisterModel": {"Arn": answer["ModelPackageArn"]}})

    def _make_group(self, name: str) -> None:
        request = {"ModelPackageGroupName": name}
        try:
            self._forward("DescribeModelPackageGroup", request)
        except ApiError as error:
            if error.status >= 500:
                raise
            self._forward("CreateModelPackageGroup", request)

    def _model(self, step: Step, arguments: dict, execution: Execution, note: Note) -> None:
        name = arguments.get("ModelName") or execution.unique_name(step)
        try:
            answer = self._forward("CreateModel", arguments | {"ModelName": name})
        except ApiError as error:
            raise _refused("CreateModel", error) from None
        note({"Model": {"Arn": answer["ModelArn"]}})

    def _fail(self, step: Step, arguments: dict, execution: Execution, note: Note) -> None:
        message = str(arguments.get("ErrorMessage", ""))
        note({"Fail": {"ErrorMessage": message}})
        raise StepFailed(message)


def _refused(operation: str, error: ApiError) -> StepFailed:
    """AWS's words for an API call that a step could not make."""
    kind = "InternalServerError" if error.status >= 500 else "ClientError"
    details = f"Failed to invoke sagemaker:{operation}. Error Details: {error.message}"
    return StepFailed(f"{kind}: {details}")
