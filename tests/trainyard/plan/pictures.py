"""Typical changes of a pipeline, and the pictures that a plan of each shows.

python -m tests.trainyard.plan.pictures      # draws pictures/*.txt anew; look at what changed
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines import definition
from pipelines.compile.compilation import Asset, CompiledPipeline
from pipelines.definition import build
from pipelines.delivery.recipe_plan import add_budget_check, describe_changed_files
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from trainyard.foresight.interval import Spread
from trainyard.language.expressions import resolve_parameters
from trainyard.plan.cache_prediction import History, Run, StepRun
from trainyard.plan.definition_diff import diff_definitions
from trainyard.plan.deployed_pipeline import DeployedPipeline
from trainyard.plan.pipeline_plan import Drift, Plan, create_plan
from trainyard.plan.plan_display import render_plan
from trainyard.plan.prices import load_prices
from trainyard.plan.run_cost import Foreseen, Foresight, NotForeseen

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
ROOMS = ("steps", "training", "conditions", "trainyard/common")
ARN = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/trainyard-dev"
SECONDS = {"Shard": 2520, "Train": 30600, "Evaluate": 1260, "Gate": 190, "Register": 2}

Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Change:
    """A change of the recipe, of the code, or of the definition itself."""

    overrides: tuple[str, ...] = ()
    edit: Edit = lambda checkout: None
    body: Callable[[dict], None] = lambda body: None
    drift: Callable[[dict], None] | None = None
    """What somebody did to the deployed pipeline."""

    is_new: bool = False
    is_foreseen: bool = False
    """Whether somebody foresees the training, as FORESIGHT has it."""
    went_back: bool = False
    """Whether what is deployed is the change, and what is wanted is what ran before."""


def comment(path: str) -> Edit:
    """A comment at the end of a file of the checkout."""

    def edit(checkout: Path) -> None:
        file = checkout / path
        file.write_text(f"{file.read_text()}# a comment\n")

    return edit


def report_step(body: dict) -> None:
    """A step of somebody's own, behind Evaluate."""
    evaluate = step(body, "Evaluate")
    text = json.dumps(evaluate).replace("Evaluate", "Report")
    made = json.loads(text.replace("ml.g5.xlarge", "ml.m5.large"))
    taken = made["Arguments"]["ProcessingInputs"][0]
    made["Arguments"]["ProcessingInputs"] = [taken | {"InputName": "evaluation"}]
    uri = "Steps.Evaluate.ProcessingOutputConfig.Outputs['evaluation'].S3Output.S3Uri"
    taken["S3Input"]["S3Uri"] = {"Get": uri}
    body["Steps"].append(made | {"DisplayName": "Report", "PropertyFiles": []})


def no_reject(body: dict) -> None:
    step(body, "Verdict")["Arguments"]["ElseSteps"] = []


def console(body: dict) -> None:
    resources = step(body, "Train")["Arguments"]["ResourceConfig"]
    resources["VolumeSizeInGB"] = 500
    step(body, "Evaluate")["Arguments"]["Environment"]["DEBUG"] = "1"


def step(body: dict, name: str) -> dict:
    return next(each for each in body["Steps"] if each["Name"] == name)


FORESIGHT: Foresight = {
    "Train": Foreseen(
        seconds=Spread(25800, 30600, 46800),
        grounds="20,000 steps of 1.53 s (1.29 – 2.34), 31 % MFU; start and saves are not in it",
        remarks=("fits: needs 14.2 GiB (8 of 10 times 13.1 – 15.4) of the 22.2 of its A10G",),
        warnings=("may be stopped by its time limit of 12 h 00 min before its last step",),
    ),
    "Evaluate": NotForeseen("its computation is not known"),
}
"""Made up: what the constants of the day give would change these pictures with them."""

GOING_ON = (
    "{checkpoint: s3://example-artifacts/checkpoints/1f0c2d3e4b5a6978/8796a5b4c3d2e1f0, "
    "may_differ: [max_steps]}"
)
CHANGES: Mapping[str, Change] = {
    "nothing": Change(),
    "new-pipeline": Change(is_new=True),
    "foreseen": Change(is_new=True, is_foreseen=True),
    "foreseen-beside": Change(("train.loop.learning_rate=0.0008",), is_foreseen=True),
    "learning-rate": Change(("train.loop.learning_rate=0.0008",)),
    "evaluate-job": Change(edit=comment("steps/evaluate/job.py")),
    "instance-type": Change(("train.instance_type=ml.p4d.24xlarge",)),
    "threshold": Change(("gate.max_bits_per_byte=1.35",)),
    "tag": Change(("aws.tags={project: trainyard, cost-center: ml}",)),
    "dataset": Change(("data.input=s3://example-corpus/web-2026-10",)),
    "spot": Change(
        ("train.spot=true", "train.max_wait_minutes=1440", "train.loop.max_steps=40000")
    ),
    "more-steps": Change((f"train.start_from={GOING_ON}", "train.loop.max_steps=40000")),
    "strategy": Change(("train.loop.strategy=fsdp", "train.loop.shard_degree=4")),
    "retry-policy": Change(("retry.max_attempts=3",)),
    "added-step": Change(body=report_step),
    "removed-step": Change(body=no_reject),
    "drift": Change(("train.loop.max_steps=30000",), drift=console),
    "back-again": Change(("gate.max_bits_per_byte=1.35",), went_back=True),
    "over-budget": Change(("train.instance_count=6", "train.loop.global_batch=768")),
}


class Studio:
    """Draws the plan of a change; compiles the recipe once for each."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        for room in ROOMS:
            _miniature(definition.CHECKOUT / room, self.checkout / room)
        (self.checkout / "trainyard/__init__.py").write_text("")
        (self.checkout / "steps/requirements.txt").write_text("")
        (self.checkout / "locks").mkdir()
        ray = f"ray==2.60.0 --hash=sha256:{'0' * 64}\n"  # of a recipe with several instances
        (self.checkout / "locks/packages.txt").write_text(ray)
        self._compiled: dict[tuple, CompiledPipeline] = {}
        self.base = self.compile_change(Change())

    def compile_change(self, change: Change) -> CompiledPipeline:
        key = (change.overrides, change.edit)
        if key not in self._compiled:
            self._compiled[key] = self._compile(*key)
        made = self._compiled[key]
        return replace(made, body=_edit_body(made.body, change.body))

    def _compile(self, overrides: tuple[str, ...], edit: Edit) -> CompiledPipeline:
        checkout = self.checkout
        if edit is not Change.edit:
            checkout = checkout.with_name("changed")
            shutil.copytree(self.checkout, checkout)
            edit(checkout)
        original, definition.CHECKOUT = definition.CHECKOUT, checkout
        try:
            recipe = load_recipe(HERE / "recipe.yaml", overrides)
            return build(recipe, resolve_account(recipe.aws), commit="0" * 40, source=None)
        finally:
            definition.CHECKOUT = original
            shutil.rmtree(checkout.with_name("changed"), ignore_errors=True)

    def plan(self, change: Change) -> Plan:
        wanted, before = self.compile_change(change), self.base
        if change.went_back:
            wanted, before = before, wanted
        recorded = before.state
        there = recorded
        if change.drift:
            there = replace(recorded, definition=_edit_body(recorded.definition, change.drift))
        found = DeployedPipeline(ARN, there, datetime(2026, 11, 20, 16, 5, tzinfo=UTC), "somebody")
        drift = Drift(kind="none")
        if change.drift:
            diff = diff_definitions(recorded, there)
            drift = Drift(kind="edited", diff=diff, by="user/alice", since=found.changed_at)
        plan = create_plan(
            wanted.state,
            None if change.is_new else found,
            self._history(change),
            load_prices("us-east-1", HERE / "prices.json"),
            note=self._note(wanted),
            foresee=lambda document: FORESIGHT if change.is_foreseen else {},
        )
        return replace(add_budget_check(wanted, plan), drift=drift)

    def draw(self, change: Change) -> str:
        return "".join(f"{line.plain.rstrip()}\n" for line in render_plan(self.plan(change)))

    def _note(self, wanted: CompiledPipeline) -> Callable[[str, str], str]:
        """As ``plan`` does it, with the old folder's files from here and not from S3."""
        made = (wanted, *self._compiled.values())
        folders: dict[str, Asset] = {a.uri: a for one in made for a in one.assets}

        def note(old: str, new: str) -> str:
            there = {n: (len(b), hashlib.md5(b).hexdigest()) for n, b in folders[old].files.items()}
            return describe_changed_files(there, folders[new].files, None)

        return note

    def _history(self, change: Change) -> History:
        history = History(None, None)
        if not change.is_new:
            history.runs.append(_run(json.loads(self.base.body)))
        return history


def _run(document: dict) -> Run:
    """Yesterday's run of the definition that is deployed."""
    clock = datetime.now(UTC) - timedelta(days=1)
    done = {}
    for name, seconds in SECONDS.items():
        end = clock + timedelta(seconds=seconds)
        done[name] = StepRun(start_time=clock, end_time=end, source=None, job="")
        clock = end
    arn = f"{ARN}/execution/k3vq8d1m0xzt"
    given = resolve_parameters(document, {})
    return Run(arn=arn, start_time=clock, document=document, parameters=given, steps=done)


def _miniature(room: Path, into: Path) -> None:
    """The same files with nothing in them: what travels is the same, its hash stays."""
    for file in room.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = into / file.relative_to(room)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("")


def _edit_body(body: str, edit: Callable[[dict], None]) -> str:
    tree = json.loads(body)
    edit(tree)
    return json.dumps(tree, indent=1)


def without_hashes(text: str) -> str:
    """A picture, but for the hashes in it: they change with every file that is added somewhere."""
    return re.sub(r"\b[0-9a-f]{8,16}\b", lambda match: "#" * len(match[0]), text)


def main() -> None:
    """Draw all of them."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        studio = Studio(Path(folder))
        for name, change in CHANGES.items():
            (PICTURES / f"{name}.txt").write_text(studio.draw(change))


if __name__ == "__main__":
    main()
