"""Least-privilege policies, derived from a definition; and what a given policy lacks or exceeds.

python -m pipelines.permissions --recipe recipes/prod.yaml --role job
python -m pipelines.permissions --recipe recipes/prod.yaml --template > infra/roles.yaml
python -m pipelines.permissions --recipe recipes/prod.yaml --check infra/roles.yaml
python -m pipelines.permissions --definition pipeline.json --name demo --region us-east-1 \\
    --pipeline-role arn:aws:iam::111122223333:role/demo --role pipeline
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli import SetOption
from trainyard.common.errors import DefinitionError
from trainyard.permissions.check import compare
from trainyard.permissions.roles import Role, derive
from trainyard.permissions.statements import forced_wildcards
from trainyard.permissions.subject import Subject, from_file, from_recipe
from trainyard.permissions.template import HEAD, ROLES, dump, policies_in, read, template
from trainyard.terminal import console, errors, run


def main(
    recipe: Annotated[Path | None, typer.Option(help="The recipe's YAML file.")] = None,
    overrides: SetOption = (),
    definition: Annotated[Path | None, typer.Option(help="Any definition JSON instead.")] = None,
    name: Annotated[str, typer.Option(help="With --definition: the pipeline's name.")] = "",
    region: Annotated[str, typer.Option(help="With --definition: its region.")] = "",
    pipeline_role: Annotated[str, typer.Option(help="With --definition: its role's ARN.")] = "",
    root: Annotated[
        str | None, typer.Option(help="With --definition: s3://… that an upsert writes under.")
    ] = None,
    role: Annotated[Role | None, typer.Option(help="Print this role's policy.")] = None,
    job_role: Annotated[
        str | None, typer.Option(help="Of several roles that jobs assume, this one (ARN).")
    ] = None,
    as_template: Annotated[
        bool, typer.Option("--template", help="Print a CloudFormation template of all roles.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(help="Compare with a template like ours or, with --role, a policy; exit 1."),
    ] = None,
) -> None:
    """Derive least-privilege policies from a definition; needs no AWS and no credentials."""
    subject = _subject(recipe, overrides, definition, name, region, pipeline_role, root)
    if check is not None:
        raise typer.Exit(_check(subject, check, role, job_role))
    if as_template:
        policies = {each: derive(subject, each) for each in ROLES}
        print(HEAD.format(recipe=recipe) + dump(template(subject, policies)), end="")
        shown = list(policies.values())
    elif role is not None:
        shown = [derive(subject, role, job_role)]
        print(json.dumps(shown[0], indent=1))
    else:
        raise DefinitionError(
            "what to print? give --role job|pipeline|plan|ci|events, or --template"
        )
    forced = {k: v for p in shown for k, v in forced_wildcards(p).items()}
    for action, reason in sorted(forced.items()):
        errors.print(f"{action} on *: {reason}", highlight=False, markup=False)


def _subject(
    recipe: Path | None,
    overrides: list[str],
    definition: Path | None,
    name: str,
    region: str,
    role: str,
    root: str | None,
) -> Subject:
    if (recipe is None) == (definition is None):
        raise DefinitionError("whose permissions? give either --recipe FILE or --definition FILE")
    if recipe is not None:
        return from_recipe(recipe, overrides)
    if not (name and region and role):
        raise DefinitionError(
            f"{definition}: a definition does not say its pipeline's name, region and role; give "
            "--name, --region and --pipeline-role"
        )
    return from_file(definition, name=name, region=region, role=role, root=root)


def _check(subject: Subject, file: Path, role: Role | None, job_role: str | None) -> int:
    """Print every difference; the exit status."""
    try:
        document = read(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: cannot be read: {error}") from None
    given = _given(document, subject, file, role)
    found = 0
    for each, document in given.items():
        differences = compare(derive(subject, each, job_role), document)
        found += len(differences)
        for difference in differences:
            console.print(f"{each}: {difference}", highlight=False, markup=False)
    if not found:
        console.print(f"{file}: exactly what is needed ({', '.join(given)})", highlight=False)
    return 1 if found else 0


def _given(document: dict, subject: Subject, file: Path, role: Role | None) -> dict[str, dict]:
    """Role → the policy in the file; get-role-policy's answer is taken too."""
    if "Resources" in document:
        policies = policies_in(document, subject, str(file))
        return {role: policies[role]} if role else policies
    if role is None:
        raise DefinitionError(f"{file}: is one policy; say whose with --role")
    return {role: document.get("PolicyDocument", document)}


if __name__ == "__main__":
    run(main)
