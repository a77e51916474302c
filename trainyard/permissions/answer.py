"""What a command on permissions prints: a policy, a template, or how a given one differs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from trainyard.common.errors import DefinitionError
from trainyard.permissions.check import compare
from trainyard.permissions.roles import derive, missing
from trainyard.permissions.statements import forced_wildcards
from trainyard.permissions.subject import Subject
from trainyard.permissions.table import roles
from trainyard.permissions.template import dump, policies_in, read, template
from trainyard.terminal import console, errors

RoleOption = Annotated[str | None, typer.Option("--role", help="Print this role's policy.")]
JobRoleOption = Annotated[
    str | None, typer.Option(help="Of several roles that jobs assume, this one (ARN).")
]
TemplateOption = Annotated[
    bool, typer.Option("--template", help="Print a CloudFormation template of all roles.")
]
CheckOption = Annotated[
    Path | None,
    typer.Option(help="Compare with a template like ours or, with --role, a policy; exit 1."),
]


GAPS = 2
"""Exit status where a policy is printed, or fits, and has gaps that somebody fills by hand."""


def answer(
    subject: Subject,
    head: str,
    role: str | None,
    job_role: str | None,
    as_template: bool,
    check: Path | None,
) -> None:
    """Print what the options ask for, after ``head`` where it is a template.

    What no definition tells is named on stderr, and in the template's Metadata.

    Raises:
        DefinitionError: they ask for nothing, or the document is not a definition.
        typer.Exit: with status 1 where ``check`` differs; with :data:`GAPS` where there are gaps.
    """
    if check is not None:
        raise typer.Exit(_check(subject, check, role, job_role))
    if as_template:
        policies = {each.name: derive(subject, each.name) for each in roles()}
        gaps = {name: found for name in policies if (found := missing(subject, name))}
        print(head + dump(template(subject, policies, gaps)), end="")
        shown = list(policies.values())
    elif role is not None:
        shown = [derive(subject, role, job_role)]
        gaps = {role: missing(subject, role, job_role)}
        print(json.dumps(shown[0], indent=1))
    else:
        known = "|".join(each.name for each in roles())
        raise DefinitionError(f"what to print? give --role {known}, or --template")
    if not any(policy["Statement"] for policy in shown):
        errors.print("nothing is needed; IAM takes no policy without statements", highlight=False)
    forced = {k: v for p in shown for k, v in forced_wildcards(p).items()}
    for action, reason in sorted(forced.items()):
        errors.print(f"{action} on *: {reason}", highlight=False, markup=False)
    if _tell(gaps):
        raise typer.Exit(GAPS)


def _tell(gaps: Mapping[str, list[str]]) -> bool:
    """Print every gap on stderr; whether there are any."""
    for role, said in gaps.items():
        for gap in said:
            errors.print(f"gap in {role}: {gap}", highlight=False, markup=False)
    found = any(gaps.values())
    if found:
        errors.print("write the statements that fill the gaps by hand", highlight=False)
    return found


def _check(subject: Subject, file: Path, role: str | None, job_role: str | None) -> int:
    """Print every difference; the exit status. What exceeds a policy with gaps may fill them."""
    try:
        document = read(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: cannot be read: {error}") from None
    given = _given(document, subject, file, role)
    gaps = {each: missing(subject, each, job_role) for each in given}
    found, differs = 0, False
    for each, document in given.items():
        for difference in compare(derive(subject, each, job_role), document):
            fills = difference.kind == "excess" and bool(gaps[each])
            differs |= not fills
            found += 1
            note = " (unless a gap needs it)" if fills else ""
            console.print(f"{each}: {difference}{note}", highlight=False, markup=False)
    if not found:
        what = "what can be derived" if any(gaps.values()) else "exactly what is needed"
        console.print(f"{file}: {what} ({', '.join(given)})", highlight=False)
    has_gaps = _tell(gaps)
    return 1 if differs else GAPS if has_gaps else 0


def _given(document: dict, subject: Subject, file: Path, role: str | None) -> dict[str, dict]:
    """Role → the policy in the file; get-role-policy's answer is taken too."""
    if "Resources" in document:
        policies = policies_in(document, subject, str(file))
        return {role: policies[role]} if role else policies
    if role is None:
        raise DefinitionError(f"{file}: is one policy; say whose with --role")
    return {role: document.get("PolicyDocument", document)}
