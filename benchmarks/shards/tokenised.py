"""The shard job on text with a Hugging Face tokenizer, against the tokenizer alone."""

from pathlib import Path

from benchmarks.harness import Figure, Section, Target, cores
from benchmarks.shards import alone, corpus, job
from benchmarks.shards.bench import Bench

TRAIN_BYTES = 8_000_000
"""Of text that the tokenizer is trained on."""


def measure(bench: Bench) -> Section:
    bench.end_processes()
    texts = corpus.standard_library()
    root = bench.empty("tokenised")
    tokenizer, text_bytes = _input(bench, texts, root)
    arguments = job.language_model(tokenizer)
    found = _measure(bench, root, tokenizer, arguments)
    rates = {
        "the tokenizer alone": found["alone"].rate(text_bytes),
        "the shard job, without its start": found["job"].less(found["start"]).rate(text_bytes),
        "the shard job, all of it": found["job"].rate(text_bytes),
    }
    section = Section("tokenise", "Write, tokenised: JSON Lines to shards, MB of text a second")
    section.columns = ("", "MB/s")
    section.rows = [(name, rate.text(1e6)) for name, rate in rates.items()]
    one, other = list(rates.values())[1], rates["the tokenizer alone"]
    section.targets.append(Target("shard job ÷ tokenizer alone", one.over(other), "≥", 0.9))
    section.data = {name: rate.data() for name, rate in rates.items()}
    section.data |= {"text_bytes": text_bytes, "start_seconds": found["start"].data()}
    section.notes.append(
        f"{text_bytes / 1e6:.0f} MB of the standard library's source in {bench.sizes.files} "
        f"files; a byte-level BPE of {bench.sizes.vocabulary:,} tokens; a process for each core. "
        "Alone: texts in memory, encode_batch_fast. The job's start (interpreter, imports, "
        "processes), measured on a few KB for each process in every round, took "
        f"{found['start'].text(1)} s."
    )
    return section


def _input(bench: Bench, texts: list[str], root: Path) -> tuple[Path, int]:
    """The tokenizer's file and the bytes of text; JSON Lines in ``raw`` and, tiny, in ``tiny``."""
    folder = root / "tokenizer"
    folder.mkdir()
    train, size = [], 0
    while size < min(TRAIN_BYTES, bench.sizes.text_mb * 1e6):
        train.append(texts[len(train) * 3 % len(texts)])
        size += len(train[-1])
    corpus.train_tokenizer(folder / "tokenizer.json", train, bench.sizes.vocabulary)
    size = int(bench.sizes.text_mb * 1e6)
    tiny = min(cores(), bench.sizes.files)
    corpus.write_json_lines(root / "tiny", texts, 5_000 * tiny, 5_000)
    written = corpus.write_json_lines(root / "raw", texts, size, -(-size // bench.sizes.files))
    return folder / "tokenizer.json", written


def _measure(bench: Bench, root: Path, tokenizer: Path, arguments: list[str]) -> dict[str, Figure]:
    files = sorted(str(path) for path in (root / "raw").iterdir())
    with alone.pool(len(files), alone.prepare_tokenizer, str(tokenizer), files) as executor:
        count = executor.submit(alone.batches).result()
        output = root / "out"
        return bench.rounds(
            "tokenise",
            {
                "alone": lambda: alone.seconds(executor, alone.tokenise, range(count)),
                "job": lambda: job.run(root / "raw", output, arguments).seconds,
                "start": lambda: job.run(root / "tiny", output, arguments).seconds,
            },
        )
