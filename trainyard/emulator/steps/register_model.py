"""RegisterModel: puts a package into the model registry."""

from trainyard.emulator.api import ApiError
from trainyard.emulator.steps.runner import Attempt, Runner, refused, runs


@runs("RegisterModel")
class RegisterModelRunner(Runner):
    """Calls CreateModelPackage; as on AWS the step makes a missing group itself."""

    def run(self, attempt: Attempt) -> None:
        try:
            if group := attempt.arguments.get("ModelPackageGroupName"):
                self._make_group(group.rpartition("/")[2])
            answer = self._services.forward("CreateModelPackage", attempt.arguments)
        except ApiError as error:
            raise refused("CreateModelPackage", error) from None
        attempt.note({"Arn": answer["ModelPackageArn"]})

    def describe(self, made: dict) -> dict:
        return self._services.forward("DescribeModelPackage", {"ModelPackageName": made["Arn"]})

    def _make_group(self, name: str) -> None:
        request = {"ModelPackageGroupName": name}
        try:
            self._services.forward("DescribeModelPackageGroup", request)
        except ApiError as error:
            if error.status >= 500:
                raise
            self._services.forward("CreateModelPackageGroup", request)
