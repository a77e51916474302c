"""Measure the code: python -m scripts.weigh [CHECKOUT]. Lines, files, words; imported modules.

Lines are those of Python files that git tracks; import times are processor time, the minimum of
five.
"""

import ast
import collections
import re
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PRODUCT = ("trainyard", "pipelines", "steps", "training", "conditions")
OTHERS = ("benchmarks", "tests", "scripts", "examples", "templates")
LONG = 95  # characters
SMALL = 60  # lines
FRAGMENT = re.compile(
    r"(Of|Those|That|The same|Which|Who|Whose|Than|What|Whether|Where|As|In which|So|Not|Nobody)\b"
)
"""How a docstring begins that is not understood without its neighbour."""
LOADED = {
    "a rank": "import steps.train.job, training.strategies.ddp, training.workloads; "
    "from training.workloads import load_workload; load_workload('language_model', {})",
    "the gate's job": "import steps.gate.job",
    "validate": "import trainyard.commands.validate",
    "upsert": "import pipelines.upsert",
    "definition": "import pipelines.definition",
}


def list_python_files(checkout: Path, *rooms: str) -> list[Path]:
    """Return the Python files that git tracks in the top-level folders ``rooms``."""
    return list_tracked_files(checkout, *(f"{room}/*.py" for room in rooms))


def list_tracked_files(checkout: Path, *patterns: str) -> list[Path]:
    """Return the files that git tracks under these patterns."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=checkout, capture_output=True,
                            text=True, check=True)  # fmt: skip
    return [path for name in listed.stdout.split() if (path := checkout / name).exists()]


def count_lines(paths: list[Path]) -> int:
    """Return the number of lines in all files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def measure_function_lengths(paths: list[Path]) -> list[int]:
    """Return the length of every function, in lines, in ascending order."""
    trees = (ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for path in paths)
    nodes = (node for tree in trees for node in tree if isinstance(node, ast.FunctionDef))
    return sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def list_docstrings(paths: list[Path]) -> list[str]:
    """Return every docstring, including those under fields and constants."""
    bodies = (
        node.body
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    )
    values = (node.value for body in bodies for node in body if isinstance(node, ast.Expr))
    return [value.value.strip() for value in values
            if isinstance(value, ast.Constant) and isinstance(value.value, str)]  # fmt: skip


def count_importers(checkout: Path, paths: list[Path]) -> collections.Counter[str]:
    """Return {module: number of the modules in ``paths`` that import it}, of the same modules."""
    names = {path: ".".join(path.relative_to(checkout).with_suffix("").parts) for path in paths}
    modules, counts = set(names.values()), collections.Counter[str]()
    for path, name in names.items():
        imported: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        counts.update(imported & modules - {name})
    return counts


def measure_loading(checkout: Path, statement: str) -> str:
    """Return as text the CPU time and number of our modules of a process with the statement."""
    rooms = "|".join(PRODUCT)
    count = f"import sys, re; print(len([m for m in sys.modules if re.match(r'({rooms})\\b', m)]))"
    taken, printed = [], ""
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", f"{statement}; {count}"], cwd=checkout,
                              capture_output=True, text=True, check=False)  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        printed = done.stdout.strip() or done.stderr.strip().splitlines()[-1]
    return f"{min(taken):.2f} s of CPU, {printed} modules"


def iter_report_lines(checkout: Path) -> Iterator[str]:
    """Yield the lines of the report about the code in the checkout."""
    for room in (*PRODUCT, *OTHERS):
        paths = list_python_files(checkout, room)
        yield f"{room:12} {count_lines(paths):7,} lines {len(paths):5,} files"
        below = collections.Counter(path.relative_to(checkout).parts[1] for path in paths)
        for name in sorted(below) if room in PRODUCT else ():
            inside = [path for path in paths if path.relative_to(checkout).parts[1] == name]
            if len(inside) > 1:
                yield f"  {name:18} {count_lines(inside):7,} {len(inside):5,}"
    product = list_python_files(checkout, *PRODUCT)
    texts = [path.read_text(encoding="utf-8").splitlines() for path in product]
    total, lengths = count_lines(product), measure_function_lengths(product)
    quantiles = statistics.quantiles(lengths, n=100)
    share = 1000 * len(product) / total
    yield f"product {total:,} lines, {len(product):,} files, {share:.1f} a 1,000 lines"
    p50, p90, p99 = (quantiles[percent - 1] for percent in (50, 90, 99))
    yield f"functions p50/p90/p99: {p50:.0f}/{p90:.0f}/{p99:.0f} lines"
    every = [line for text in texts for line in text]
    comments = sum(bool(re.match(r"\s*#", line)) for line in every)
    long = sum(len(line) > LONG for line in every)
    yield f"lines over {LONG} characters: {100 * long / total:.1f} %; comments: {comments:,}"
    yield f"files of at most {SMALL} lines: {sum(len(text) <= SMALL for text in texts):,}"
    single = [name for name, number in count_importers(checkout, product).items() if number == 1]
    yield f"modules with one importer: {len(single):,}"
    bases = collections.Counter(path.name for path in product if path.stem[:2] != "__")
    yield f"basenames used twice or more: {sum(number > 1 for number in bases.values()):,}"
    written = list_docstrings(product)
    fragments = sum(bool(FRAGMENT.match(text)) for text in written)
    yield f"docstrings: {len(written):,}, fragments: {100 * fragments / len(written):.0f} %"
    odd = sum(len(re.findall(r"\b(?:is|are) no [a-z]", line)) for line in every)
    yield f'lines with "is no …": {odd:,}'
    documents = list_tracked_files(checkout, "*.md")
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in documents)
    yield f"documents: {words:,} words"
    yield from (
        f"{what}: {measure_loading(checkout, statement)}" for what, statement in LOADED.items()
    )


if __name__ == "__main__":
    print(*iter_report_lines(Path(sys.argv[1] if sys.argv[1:] else ".").resolve()), sep="\n")
