"""RegisterModel step: add a model package to the registry."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from trainyard.emulator.request_scope import ApiError, find_other_account
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.sagemaker.model_registry import refuse_foreign_group
from trainyard.emulator.sagemaker.pipelines.steps.runner import Attempt, Runner, make_failure, runs


@runs("RegisterModel")
class RegisterModelRunner(Runner):
    """Call CreateModelPackage. As on AWS, the step itself creates the group if it is missing."""

    @staticmethod
    def iter_checks(step_type: str, arguments: dict, python: Path) -> Iterable[Check]:
        yield partial(refuse_foreign_group, arguments.get("ModelPackageGroupName", ""))

    def run(self, attempt: Attempt) -> None:
        request = dict(attempt.arguments)
        try:
            if group := request.get("ModelPackageGroupName"):
                tags = request.pop("Tags", [])
                if not find_other_account(group):  # a group of another account must exist
                    self._ensure_group(group.rpartition("/")[2], tags)
            else:  # the SDK removes the name from the definition, as for jobs
                request = {"ModelPackageName": attempt.name} | request
            answer = self._services.forward("CreateModelPackage", request)
        except ApiError as error:
            raise make_failure("CreateModelPackage", error) from None
        attempt.note({"Arn": answer["ModelPackageArn"]})

    def describe(self, metadata: dict) -> dict:
        return self._services.forward("DescribeModelPackage", {"ModelPackageName": metadata["Arn"]})

    def _ensure_group(self, name: str, tags: list[dict]) -> None:
        """Create the group with the step's tags, if it is missing."""
        request = {"ModelPackageGroupName": name}
        try:
            self._services.forward("DescribeModelPackageGroup", request)
        except ApiError as error:
            if error.status >= 500:
                raise
            # The tags go to the group, because a package has the tags of its group.
            tags_member = {"Tags": tags} if tags else {}
            self._services.forward("CreateModelPackageGroup", request | tags_member)
