"""Faults that workloads have, seeded into a sound one: an edit, and the rule that it breaks."""

import json
from dataclasses import dataclass
from pathlib import Path

SOUND = Path(__file__).parent / "sound"


@dataclass(frozen=True, slots=True)
class Seeded:
    what: str
    rules: tuple[str, ...]
    """Rules of which the first broken one must be."""

    file: str
    old: str
    new: str


def write(fault: Seeded | None, folder: Path, package: str) -> str:
    """The workload with the fault as ``folder/package``; returns its name. None: the sound one."""
    (folder / package).mkdir(parents=True)
    for path in SOUND.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if fault and path.name == fault.file:
            assert text.count(fault.old) == 1, f"{fault.what}: stands not once in {path}"
            text = text.replace(fault.old, fault.new)
        (folder / package / path.name).write_text(text, encoding="utf-8")
    return f"{package}.work"


def lines(count: int = 200) -> str:
    """Sample data as JSON Lines, every record another one."""
    texts = []
    for number in range(count):
        digits = [number % 11, number // 11 % 11, number // 121, number * 7 % 11, 3, 5]
        numbers = " ".join(map(str, digits[: 1 + number % 6]))
        colour = ("red", "blue", "green")[number % 3]
        texts.append(json.dumps({"numbers": numbers, "colour": colour}))
    return "\n".join(texts) + "\n"


WORK, NETWORK = "work.py", "network.py"
LOSS = "return self.nats(outputs, batch).sum()\n"
UNITS = "return self.counted(batch).sum()\n"
COUNTED = "    def counted(self, batch):\n"
FORWARD = "        x = self.dropout(x * self.scale)\n"
RETURN = "        return self.head(x) * (1 + 1e-3 * self.seen)\n"
SEEN = 'self.register_buffer("seen", torch.zeros(()))'
LAYERS = "nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])"
MEAN = "        x = x + x.mean(1, keepdim=True)\n"
PAIRS = """import torch

        every = torch.nn.functional.normalize(outputs.flatten(1))
        own = torch.arange(len(every))
        return torch.nn.functional.cross_entropy(every @ every.T, own, reduction='sum')
"""
NUMPYS_NOISE = """        import numpy

        x = x * self.scale * (1 + 0.1 * numpy.random.rand() * self.training)
"""
COUNTS_IN_ATTRIBUTE = """        self.steps = getattr(self, 'steps', 0) + self.training
        return self.head(x) * (1 + 1e-3 * self.steps)
"""
COUNTS_UNSAVED = """self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_forward_pre_hook(lambda m, _: [m.seen.add_(m.training)] and None)"""
COUNTS_IN_MODULE = """        COUNT.append(self.training)
        return self.head(x) * (1 + 1e-2 * sum(COUNT))


COUNT = []
"""
ROUNDS = """    def export(self, weights):
        return {n: w.half() if w.dim() else w for n, w in weights.items()}, {}

"""
SPLITS = """class Workload(Simple):
    @classmethod
    def derive_spec(cls):
        from dataclasses import replace

        return replace(super().derive_spec(), refuse_split=lambda *_: None)

"""

FAULTS = [
    Seeded("a batch of one loses its dimension", ("runs",), NETWORK, RETURN,
           "        return (self.head(x) * (1 + 1e-3 * self.seen)).squeeze()\n"),
    Seeded("torch is imported with the columns", ("imports",), WORK,
           "import numpy as np\n", "import numpy as np\nimport torch.nn\n"),
    Seeded("packing iterates over a set", ("packing",), WORK,
           "for word in text.split()]", "for word in set(text.split())]"),
    Seeded("packing takes Python's hash", ("packing",), WORK,
           "(rows[:, 0] > 2).astype(np.float32) + 1",
           "np.array([hash(c) % 9 for c in records.column('colour').to_pylist()], np.float32)"),
    Seeded("a mean over the samples", ("loss is a sum",), WORK,
           LOSS, LOSS.replace("sum()", "sum(1).mean()")),
    Seeded("a loss over the pairs of the batch", ("loss is a sum",), WORK, LOSS, PAIRS),
    Seeded("a mean over the units", ("loss is a sum",), WORK,
           LOSS, LOSS.replace("sum()", "sum() / self.units(batch)")),
    Seeded("one loss for each sample", ("runs",), WORK, LOSS, LOSS.replace("sum()", "sum(1)")),
    Seeded("the logarithm of zero", ("runs",), WORK,
           "return nats * self.counted(batch)", "return nats.log() * self.counted(batch).log()"),
    Seeded("a loss without a gradient", ("runs",), WORK,
           LOSS, LOSS.replace("outputs", "outputs.detach()")),
    Seeded("inputs in float64", ("runs",), NETWORK,
           "x = self.embedding(numbers)\n", "x = self.embedding(numbers).double()\n"),
    Seeded("units count the padding", ("units fit the loss",), WORK,
           UNITS, "return (self.counted(batch) | True).sum()\n"),
    Seeded("units that are no tensor", ("runs",), WORK,
           UNITS, "return int(self.counted(batch).sum())\n"),
    Seeded("dropout in evaluation", ("evaluation is calm",), NETWORK,
           FORWARD, "        x = nn.functional.dropout(x * self.scale, 0.1)\n"),
    Seeded("dropout that nobody knows of", ("random numbers are torch's",), NETWORK,
           FORWARD, "        x = nn.functional.dropout(x * self.scale, 0.1, self.training)\n"),
    Seeded("noise of numpy's", ("random numbers are torch's",), NETWORK, FORWARD, NUMPYS_NOISE),
    Seeded("weights that Python's random drew", ("fresh weights", "random numbers are torch's"),
           NETWORK, "torch.ones(16)", "torch.tensor([__import__('random').random()] * 16)"),
    Seeded("layers in a plain list", ("weights are registered",), NETWORK,
           LAYERS, "[nn.Linear(16, 16), nn.Linear(16, 16)]"),
    Seeded("a weight that is no Parameter", ("weights are registered",), NETWORK,
           "nn.Parameter(torch.ones(16))", "torch.ones(16, requires_grad=True)"),
    Seeded("half of the model behind detach()", ("gradients reach all weights",), NETWORK,
           MEAN, "        x = (x + x.mean(1, keepdim=True)).detach()\n"),
    Seeded("a weight that nothing uses", ("gradients reach all weights",), NETWORK,
           "Dropout(0.1)\n", "Dropout(0.1)\n        self.spare = nn.Linear(4, 4)\n"),
    Seeded("normalised over the batch", ("samples stand alone",), NETWORK,
           MEAN, "        x = x - x.mean(0, keepdim=True)\n"),
    Seeded("a counter in an attribute", ("state is saved",), NETWORK, RETURN, COUNTS_IN_ATTRIBUTE),
    Seeded("statistics in a buffer that is not saved", ("state is saved",), NETWORK,
           SEEN, COUNTS_UNSAVED),
    Seeded("a counter in a module", ("deterministic", "resumes"), NETWORK,
           RETURN, COUNTS_IN_MODULE),
    Seeded("an export that rounds", ("export and restore",), WORK, COUNTED, ROUNDS + COUNTED),
    Seeded("scores that are means", ("scores agree with the loss",), WORK,
           '"loss": (self.nats(outputs, batch).sum(1), units)',
           '"loss": self.nats(outputs, batch).mean(1)'),
    Seeded("a metric that is not measured", ("scores",), WORK,
           ', "accuracy": (hits.sum(1), units)', ""),
    Seeded("a split that it is not made for", ("strategies",), WORK,
           "class Workload(Simple):\n", SPLITS),
]  # fmt: skip
