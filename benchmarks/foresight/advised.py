"""Write docs/advice.md anew: the advice for three models on 1 T tokens.

python -m benchmarks.foresight.advised
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.common import atomic_file
from trainyard.foresight.advice import Advice, Candidate, advise, select_layouts
from trainyard.foresight.advice_display import (
    explain_missed_bound,
    explain_rank,
    format_cells,
    format_count,
    format_layout,
    format_run,
    list_headings,
)
from trainyard.foresight.cloud_machines import TABLE
from trainyard.foresight.model_shapes import get_model
from trainyard.foresight.question import Offer, Question, choose_offers
from trainyard.foresight.setting import Setting
from trainyard.plan.prices import load_prices

FILE = Path(__file__).parents[2] / "docs/advice.md"
TOKENS = 1e12
REGION = "us-east-1"
TYPES = ("ml.p4d.24xlarge", "ml.p5.48xlarge", "ml.p5en.48xlarge")
DAY = 24.0


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and the limits of the training that advice is asked for."""

    title: str
    model: str
    batch: int
    """Samples of a step."""

    days: int
    nodes: int

    @property
    def command(self) -> str:
        """Command line that prints one row of its table."""
        return (
            f"trainyard advise --model {self.model} --tokens 1T --global-batch {self.batch} "
            f"--deadline {self.days}d --max-nodes {self.nodes} --instances TYPE"
        )


CASES = (
    Case("7B", "llama-2-7b", 1024, 30, 32),
    Case("70B", "llama-3-70b", 512, 90, 64),
    Case("405B", "llama-3-405b", 2048, 365, 128),
)

HEAD = Path(__file__).parent / "text/advised.md"


def format_page() -> str:
    """Return the whole page as Markdown."""
    head = HEAD.read_text(encoding="utf-8")
    lines = [line for case in CASES for line in iter_section_lines(case)]
    return "\n".join([head, *lines, *iter_source_lines()])


def iter_section_lines(case: Case, types: Sequence[str] = TYPES) -> Iterator[str]:
    """Yield a model's section: the question, the best layout on each type, and why others lost."""
    offers, _ = choose_offers(",".join(types), REGION)
    found = [advise(_make_question(case, offer)) for offer in offers]
    question = found[0].question
    batch = format_count(question.global_batch * question.model.sequence)
    yield f"## {case.title}: {case.model}"
    yield ""
    yield (
        f"{format_count(question.parameters)} parameters ({get_model(case.model).source}) on "
        "1 T tokens: "
        f"{question.steps:,} steps of {question.global_batch:,} × {question.model.sequence:,} "
        f"({batch} tokens), in {case.days} days, on up to {case.nodes} instances of one type."
    )
    yield f"\n```\n{case.command}\n```\n"
    yield from _iter_table_lines([advice.ranking[0] for advice in found if advice.ranking])
    yield from _iter_reasons(found[0])


def _make_question(case: Case, offer: Offer) -> Question:
    shape = get_model(case.model).shape
    return Question(
        model=Setting(gpu=offer.machine.gpu, compile=True, **shape),
        tokens=TOKENS,
        global_batch=case.batch,
        offers=[offer],
        max_nodes=case.nodes,
        deadline=case.days * DAY,
        region=REGION,
    )


def _iter_table_lines(best: Sequence[Candidate]) -> Iterator[str]:
    titles = list_headings(best[0])
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for one in best:
        yield f"| {' | '.join(format_cells(one, best[0]))} |"
    yield ""


def _iter_reasons(advice: Advice) -> Iterator[str]:
    """Yield lines on the first layout's run, and on why others on that type of machine lost."""
    question = advice.question
    yield f"On {question.offers[0].name}, of {advice.count.layouts:,} layouts:\n"
    if not advice.ranking:
        yield "- No layout fits. " + "; ".join(advice.remedies)
        yield ""
        return
    first, *others = select_layouts(advice)
    yield f"- {format_run(first)}"
    shown: dict[str | bool, Candidate] = {}
    for one in others:  # one on the same machines, one on others, one that is late
        late = explain_missed_bound(one, question)
        shown.setdefault("late" if late else one.machines == first.machines, one)
    for one in shown.values():
        reason = explain_rank(one, first, question)
        yield f"- {one.nodes} machines, {format_layout(one.setting)}: {reason}"
    yield ""


def iter_source_lines() -> Iterator[str]:
    """Yield the lines on where prices and rates of interruptions are from."""
    yield "## Prices and interruptions"
    yield ""
    yield f"| instance | USD an hour, {REGION} | as of |"
    yield "|---|---|---|"
    prices = load_prices(REGION)
    for name in TYPES:
        entry = prices.table["training"][name]
        date = prices.sources[entry["source"]]["date"]
        yield f"| {name} | {entry['usd']:.2f} | {date} |"
    yield "\n`trainyard/plan/prices.json` has their sources.\n"
    names = TABLE["sources"]
    rates = "; ".join(f"{x['rate']}: {names[x['source']]['what']}" for x in TABLE["failures"])
    yield f"Failures of 1,000 nodes of 8 GPUs and a day, as p10, median and p90: {rates}."


def main() -> None:
    """Write the page."""
    atomic_file.write_file(FILE, format_page().rstrip() + "\n")
    print(f"{FILE}: written")


if __name__ == "__main__":
    main()
