"""The page of advice: what its command writes."""

import pytest

from benchmarks.foresight.advised import CASES, FILE, HEAD, Case, iter_section_lines

pytestmark = pytest.mark.long


def test_a_section_has_a_table_reasons_and_sources():
    few = Case("7B", "llama-2-7b", 1024, 365, 1)
    text = "\n".join(iter_section_lines(few, ("ml.p5.48xlarge",)))
    assert "| 1 × p5.48xlarge |" in text
    for part in (few.command, "- the run: ", "- 1 machines, FSDP/8", "a step", "arXiv"):
        assert part in text


def test_the_page_has_what_its_command_writes():
    written = FILE.read_text(encoding="utf-8")
    assert written.startswith(HEAD.read_text(encoding="utf-8"))
    for case in CASES:
        assert f"## {case.title}: {case.model}" in written and case.command in written
