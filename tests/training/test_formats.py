"""Which commit reads what older ones wrote: looked up in this repository's history."""

import subprocess

import pytest

from tests.conftest import CHECKOUT
from training.formats import READERS, older

WRITTEN = {
    ("manifest", 1): ("training/data/manifest.py", "FORMAT = 1\n"),
    ("manifest", 2): ("training/data/manifest.py", "FORMAT = 2\n"),
    ("manifest", 3): ("training/data/manifest.py", "FORMAT = 3\n"),
    ("checkpoint", "state.pt"): ("training/checkpoint.py", "state.pt"),
    ("checkpoint", "without lineage"): ("training/checkpoint.py", "complete.json"),
    ("provenance.json", 1): ("pipelines/provenance.py", '"format": 1,'),
}
"""(Kind, older form) → file, and what in it says that the commit has this form."""


def test_every_older_form_is_looked_up_here():
    assert {(kind, form) for kind, forms in READERS.items() for form in forms} == WRITTEN.keys()


@pytest.mark.parametrize(("kind", "form"), WRITTEN)
def test_the_commit_that_is_named_has_the_form(kind: str, form: object):
    path, said = WRITTEN[kind, form]
    place = f"{READERS[kind][form]}:{path}"
    shown = subprocess.run(
        ["git", "-C", str(CHECKOUT), "show", place], capture_output=True, text=True, check=False
    )
    if shown.returncode:
        pytest.skip(f"this checkout lacks the history: {shown.stderr.strip()}")
    assert said in shown.stdout and "lineage" not in shown.stdout


@pytest.mark.parametrize("form", [7, "4", None, [3], 3.5])
def test_a_form_that_no_older_commit_wrote_is_no_older_one(form: object):
    assert (
        older("manifest", form) == "which no older version wrote: it is of a newer one, or damaged"
    )
