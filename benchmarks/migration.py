"""Move public pipelines from SDK v2 to v3, and prove each by ``trainyard equal``.

python -m benchmarks.migration REPOSITORY --old-python PYTHON [--count 10] [--only WORD]

REPOSITORY is a clone of aws/amazon-sagemaker-examples, also a bare one. The rule: of its notebooks
below ml_ops/ that import sagemaker.workflow.pipeline, by path, the first ten whose code compiles
offline under SDK v2, in an environment with that SDK alone, where public data sets are stand-ins.
A notebook becomes a script of its code cells; of its commands only mkdir and writefile are run.
With --static no step is executed. Otherwise the old pipeline is executed twice and the new one
once, where the emulator runs all its steps; the answer says which.
"""

import json
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trainyard.common.errors import TrainyardError
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.equality.static_comparison import Answer
from trainyard.migration.rewriting import migrate
from trainyard.migration.signatures import Sides, prove

USES = "sagemaker.workflow.pipeline import"
STAND_INS = [
    "s3://sagemaker-sample-files/datasets/tabular/uci_abalone/abalone.csv",
    "s3://sagemaker-example-files-prod-us-east-1/datasets/tabular/uci_abalone/abalone.csv",
    "s3://sagemaker-example-files-prod-us-east-1/datasets/tabular/uci_adult/adult.data",
    "s3://sagemaker-example-files-prod-us-east-1/datasets/tabular/uci_adult/adult.test",
    "s3://sagemaker-example-files-prod-us-east-1/datasets/tabular/synthetic_credit_card_transactions"
    "/user0_credit_card_transactions.csv",
]
BATCH = "s3://sagemaker-servicecatalog-seedcode-us-east-1/dataset/abalone-dataset-batch"
"""Rows for the trained model. The notebooks give no type, which the image reads as libsvm."""


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def notebooks(repository: Path) -> Iterator[tuple[str, dict]]:
    """Iterate over (path, notebook) of those that the rule looks at."""
    for path in sorted(git(repository, "ls-tree", "-rz", "--name-only", "HEAD").split("\0")):
        if path.strip().startswith("ml_ops/") and path.endswith(".ipynb"):
            text = git(repository, "show", f"HEAD:{path}")
            if USES in text:
                yield path, json.loads(text)


def as_script(notebook: dict) -> str:
    """Return the code cells as a script; a cell that writes a file does so."""
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    return "\n\n".join(_cell(text) for text in cells)


def _cell(text: str) -> str:
    if text.startswith("%%writefile"):
        head, _, body = text.partition("\n")
        path = head.split()[-1]
        folder = f"pathlib.Path({path!r}).parent.mkdir(parents=True, exist_ok=True)"
        return f"import pathlib\n\n{folder}\npathlib.Path({path!r}).write_text({body!r})"
    if text.startswith("%%"):
        return ""
    mkdir = r"\1__import__('os').makedirs('\2', exist_ok=True)"
    text = re.sub(r"(?m)^(\s*)!.*\bmkdir (?:-p )?(\S+)$", mkdir, text)
    return re.sub(r"(?m)^(\s*)(?:!(?!=)|%[a-z]).*$", r"\1pass", text)


def beside(repository: Path, notebook: str, folder: Path) -> None:
    """Write the files that lie beside a notebook, or below it, into the folder."""
    where = notebook.rpartition("/")[0]
    if where.strip() == "ml_ops":
        return
    for path in git(repository, "ls-tree", "-rz", "--name-only", "HEAD", f"{where}/").split("\0"):
        if path.endswith((".py", ".csv", ".json", ".txt", ".yaml")):
            file = folder / path[len(where) + 1 :]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(git(repository, "show", f"HEAD:{path}"))


def tried(
    script: str, old_python: Path, repository: Path, notebook: str, *, static: bool = False
) -> tuple[str, list[str]]:
    """Return what became of a script, and the lines that remain; empty if v2 does not compile."""
    moved = migrate(script)
    with tempfile.TemporaryDirectory() as folder:
        path, stand_in = Path(folder, "pipeline.py"), Path(folder, "stand-in.csv")
        beside(repository, notebook, Path(folder))
        path.write_text(script)
        stand_in.write_text(abalone())
        puts = dict.fromkeys(STAND_INS, stand_in) | {BATCH: Path(folder, "batch.libsvm")}
        puts[BATCH].write_text("".join(f"0 0:{n / 9} 9:{n % 2}\n" for n in range(9)))
        sides = Sides(
            script=path,
            old_python=old_python,
            new_python=OWN_PYTHON,
            puts=puts,
            static=static,
            twice=not static,
        )
        try:
            answer = prove(script, moved.code, sides)
        except TrainyardError as failure:
            if str(old_python) in str(failure):
                return "", [str(failure)]
            verdict = f"does not compile: {failure}"
        else:
            verdict = _in_words(answer)
    rows = [
        f"line {r.line}: {' '.join(r.construct.split())[:90]}: {r.reason}" for r in moved.remaining
    ]
    return verdict, rows


def abalone() -> str:
    """Return rows in the form of the data set that most of the notebooks learn from."""
    draw = random.Random(1)
    rows = ""
    for _ in range(400):
        size = draw.uniform(0.1, 0.8)
        values = [size * share for share in (1, 0.8, 0.3, 1.6, 0.7, 0.35, 0.45)]
        measured = ",".join(f"{value:.3f}" for value in values)
        rows += f"{draw.choice('MFI')},{measured},{int(3 + 15 * size + draw.random() * 3)}\n"
    return rows


def _in_words(answer: Answer) -> str:
    cause = answer.cause
    if cause is None:
        return "\n    ".join([f"{answer.verdict} ({answer.evidence})", *answer.but_for])
    return f"different: {cause.step} {cause.what}: {cause.first} | {cause.second}"[:300]


def main(
    repository: Annotated[Path, typer.Argument(help="A clone of amazon-sagemaker-examples.")],
    old_python: Annotated[Path, typer.Option(help="A Python with sagemaker<3.")],
    count: Annotated[int, typer.Option(help="Pipelines.")] = 10,
    only: Annotated[str, typer.Option(help="Those whose path contains this.")] = "",
    static: Annotated[bool, typer.Option("--static", help="Execute nothing.")] = False,
) -> None:
    """Print what became of each pipeline, and how many are moved and proven."""
    done = proven = 0
    for path, notebook in notebooks(repository):
        if only not in path or done == count:
            continue
        verdict, rows = tried(as_script(notebook), old_python, repository, path, static=static)
        name = Path(path).stem
        if not verdict:
            print(f"{name}: not under SDK v2: {rows[0][:300]}", flush=True)
            continue
        done, proven = done + 1, proven + (not rows and verdict.startswith("equal"))
        print(f"{name}: {verdict}", *rows, sep="\n  remains: ", flush=True)
    print(f"{done} pipelines: {proven} moved and proven")


if __name__ == "__main__":
    typer.run(main)
