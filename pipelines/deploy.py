"""Bring an Approved model package into service at the recipe's endpoint, or go back.

python -m pipelines.deploy MODEL_PACKAGE_ARN --recipe recipes/prod.yaml [--env prod] [--quick]
python -m pipelines.deploy --rollback --recipe recipes/prod.yaml [--env prod]

The package is verified first. SageMaker shifts the requests as ``deploy.shift`` says. An alarm on
errors, latency or the comparison with the serving model sends all requests back to that model.
The command ends when the new model serves (exit status 0), or was rolled back (1).
"""

from typing import Annotated

import typer

from pipelines.endpoint.endpoint_requests import CAPTURE_FOLDER, Release
from pipelines.endpoint.rollout import deploy_release, roll_back_endpoint
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import find_account, refuse_other_caller, resolve_account
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.champion import open_evidence
from pipelines.registry.verification import find_first_mismatch, verify
from trainyard.common.errors import GateError, RecipeError
from trainyard.terminal import Need, console, needs, run


def prepare_release(package: str, recipe: Recipe, *, quick: bool) -> Release:
    """Check that a package may be deployed, and return its release.

    Raises:
        GateError: it is not Approved, is of another group, or does not match its record.
    """
    account = resolve_account(recipe.aws)
    capture = f"s3://{account.bucket}/{recipe.aws.prefix}/{recipe.pipeline.name}/{CAPTURE_FOLDER}"
    new_release = Release(recipe, package, account.job_role, capture)
    _ = new_release.deploy  # raises RecipeError if the recipe has no endpoint
    package_details = open_evidence(package).registered_package
    group = recipe.register_.model_package_group.rpartition("/")[2]
    if package_details.get("ModelPackageGroupName") != group:
        raise GateError(
            f"{package}: is of group {package_details.get('ModelPackageGroupName')}, not {group}"
        )
    if (status := package_details.get("ModelApprovalStatus")) != "Approved":
        raise GateError(f"{package}: is {status}; approve it first (python -m pipelines.approve)")
    if wrong := find_first_mismatch(verify(package, quick=quick)):
        raise GateError(f"{package}: not deployed: {wrong.name} does not match: {wrong.detail}")
    return new_release


def _print_line(line: str) -> None:
    console.print(line, highlight=False, markup=False)


@needs(Need(("package", "rollback")))
def main(
    recipe: RecipeOption,
    package: Annotated[str | None, typer.Argument(metavar="MODEL_PACKAGE_ARN")] = None,
    environment: EnvOption = None,
    overridden: SetOption = NOT_GIVEN,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Serve the previous model again.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Verify with a few small reads only.")
    ] = False,
) -> None:
    """Deploy a package to the recipe's endpoint, or return to the previous model."""
    recipe_config = load_recipe(recipe, overridden, environment)
    refuse_other_caller(find_account(recipe_config.aws, environment), recipe_config.aws.region)
    if rollback:
        if recipe_config.deploy is None:
            raise RecipeError(
                f"{recipe}: deploy: is missing; it names the endpoint to roll back, as deploy: "
                "{endpoint: NAME}"
            )
        outcome = roll_back_endpoint(
            recipe_config.deploy.endpoint, resolve_account(recipe_config.aws).region, _print_line
        )
    else:
        outcome = deploy_release(
            prepare_release(str(package), recipe_config, quick=quick), _print_line
        )
    summary = f"{outcome.config} serves"
    if not outcome.is_serving:
        summary = f"rolled back: {summary}. {outcome.reason}"
    _print_line(summary)
    raise typer.Exit(0 if outcome.is_serving else 1)


if __name__ == "__main__":
    run(main)
