"""Each verb on a zone, in this process, so that the SDK is imported once for all of them."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from cfnlint.api import lint
from cfnlint.config import ManualArgs
from typer.testing import CliRunner, Result

from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from tests.pipelines.landing_zones.zones import Zone

GAPS = 2  # exit status of permissions: something cannot be derived, and is named


def call_verb(module: str, *words: str) -> Result:
    """Run a verb, as on the command line."""
    app = typer.Typer(add_completion=False)
    app.command()(importlib.import_module(f"pipelines.{module}").main)
    return CliRunner().invoke(app, list(words))


def describe_failure(done: Result, allowed: Sequence[int] = (0,)) -> str:
    """Return what a verb said that failed; nothing of one that did not."""
    if done.exit_code in allowed:
        return ""
    return done.output if isinstance(done.exception, SystemExit) else str(done.exception)


def words(zone: Zone, environment: str | None, *, offline: bool) -> list[str]:
    """Return the options that choose the zone's recipe, as the emulator sees it if ``offline``."""
    chosen = ["--env", environment] if environment else []
    settings = zone.offline if offline else ()
    return ["--recipe", str(zone.recipe), *chosen, *(w for one in settings for w in ("--set", one))]


def recipe_of(zone: Zone, environment: str | None) -> Recipe:
    """Return the recipe that the emulator sees."""
    return load_recipe(zone.recipe, zone.offline, environment)


def verbs(zone: Zone, environment: str | None, folder: Path) -> dict[str, Callable[[], str]]:
    """Return name → what runs the verb on an environment, and says what is wrong."""
    plain = words(zone, environment, offline=False)
    asking = words(zone, environment, offline=True)
    return {
        "validate": lambda: describe_failure(call_verb("validate", *plain)),
        "plan": lambda: describe_failure(call_verb("plan", *asking), (0, 2)),
        "package": lambda: describe_failure(call_verb("package", *asking)),
        "cloudformation": lambda: _lint_template(zone, plain, folder),
        "beside": lambda: _check_beside_templates(zone, plain),
        "permissions": lambda: _check_permissions(zone, plain, folder),
    }


def render_infra(zone: Zone, chosen: Sequence[str], form: str) -> Result:
    """Return what ``infra`` prints of the zone."""
    return call_verb("infra", *chosen, "--as", form, *zone.infra)


def _lint_template(zone: Zone, chosen: Sequence[str], folder: Path) -> str:
    done = render_infra(zone, chosen, "cloudformation")
    if problem := describe_failure(done):
        return problem
    (folder / "pipeline.yaml").write_text(done.stdout, encoding="utf-8")
    return _lint(zone, done.stdout)


def _lint(zone: Zone, template: str) -> str:
    region = load_recipe(zone.recipe).aws.region if not zone.environments else None
    found = lint(template, config=ManualArgs(regions=[region or "us-east-1"]))
    return "\n".join(str(match) for match in found)


BESIDE = (
    *(("--part", part) for part in ("storage", "messages")),
    *(("--ci", ci) for ci in ("codepipeline", "github", "gitlab")),
)


def _check_beside_templates(zone: Zone, chosen: Sequence[str]) -> str:
    """Look whether what lies beside the pipeline is a template, and names no stack of ours."""
    problems = []
    for option in BESIDE:
        done = call_verb("infra", *chosen, "--as", "cloudformation", *option)
        if "--ci codepipeline: " in str(done.exception):  # refused by name
            continue
        problem = describe_failure(done) or _lint(zone, done.stdout)
        if "ImportValue" in done.stdout:
            problem = "imports from another stack"
        problems += [f"{option[-1]}: {problem}"] if problem else []
    return "\n".join(problems)


def _check_permissions(zone: Zone, chosen: Sequence[str], folder: Path) -> str:
    """Compare the roles of the rendered template with the derived ones."""
    if zone.one_role:
        return describe_failure(call_verb("permissions", *chosen, "--role", "job"), (0, GAPS))
    template = folder / "pipeline.yaml"
    if not template.exists():
        return "there is no template"
    return describe_failure(call_verb("permissions", *chosen, "--check", str(template)), (0, GAPS))
