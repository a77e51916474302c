"""Faults that workloads have, seeded into a sound one: an edit, and the rule that it breaks."""

import json
from dataclasses import dataclass
from pathlib import Path

SOUND = Path(__file__).parent / "sound"


@dataclass(frozen=True, slots=True)
class Seeded:
    """A fault that is seeded into the sound workload."""

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


_FORWARD = "        x = self.dropout(x * self.scale)\n"
_RETURN = "        return self.head(x) * (1 + 1e-3 * self.seen)\n"

FAULTS = [
    Seeded(
        "a batch of one loses its dimension", ("runs",), "network.py",
        _RETURN, "        return (self.head(x) * (1 + 1e-3 * self.seen)).squeeze()\n",
    ),
    Seeded(
        "torch is imported with the columns", ("imports",), "work.py",
        "import numpy as np\n", "import numpy as np\nimport torch.nn\n",
    ),
    Seeded(
        "packing iterates over a set", ("packing",), "work.py",
        "numbers = [int(word) for word in text.split()]",
        "numbers = [int(word) for word in set(text.split())]",
    ),
    Seeded(
        "packing takes Python's hash", ("packing",), "work.py",
        "(rows[:, 0] > 2).astype(np.float32) + 1",
        "np.array([hash(c) % 9 for c in records.column('colour').to_pylist()], np.float32)",
    ),
    Seeded(
        "a mean over the samples", ("loss is a sum",), "work.py",
        "return self.nats(outputs, batch).sum()\n",
        "return self.nats(outputs, batch).sum(1).mean()\n",
    ),
    Seeded(
        "a loss over the pairs of the batch", ("loss is a sum",), "work.py",
        "return self.nats(outputs, batch).sum()\n",
        "import torch\n\n"
        "        every = torch.nn.functional.normalize(outputs.flatten(1))\n"
        "        own = torch.arange(len(every))\n"
        "        return torch.nn.functional.cross_entropy(every @ every.T, own, reduction='sum')\n",
    ),
    Seeded(
        "a layer in float64", ("runs",), "network.py",
        "        self.head = nn.Linear(16, numbers)\n",
        "        self.head = nn.Linear(16, numbers).double()\n",
    ),
    Seeded(
        "a mean over the units", ("loss is a sum",), "work.py",
        "return self.nats(outputs, batch).sum()\n",
        "return self.nats(outputs, batch).sum() / self.units(batch)\n",
    ),
    Seeded(
        "one loss for each sample", ("runs",), "work.py",
        "return self.nats(outputs, batch).sum()\n", "return self.nats(outputs, batch).sum(1)\n",
    ),
    Seeded(
        "the logarithm of zero", ("runs",), "work.py",
        "return nats * self.counted(batch)", "return nats.log() * self.counted(batch).log()",
    ),
    Seeded(
        "a loss without a gradient", ("runs",), "work.py",
        "return self.nats(outputs, batch).sum()\n",
        "return self.nats(outputs.detach(), batch).sum()\n",
    ),
    Seeded(
        "inputs in float64", ("runs",), "network.py",
        "x = self.embedding(numbers)\n", "x = self.embedding(numbers).double()\n",
    ),
    Seeded(
        "units count the padding", ("units fit the loss",), "work.py",
        "return self.counted(batch).sum()\n",
        "return (self.counted(batch) | True).sum()\n",
    ),
    Seeded(
        "units that are no tensor", ("runs",), "work.py",
        "return self.counted(batch).sum()\n", "return int(self.counted(batch).sum())\n",
    ),
    Seeded(
        "dropout in evaluation", ("evaluation is calm",), "network.py",
        _FORWARD, "        x = nn.functional.dropout(x * self.scale, 0.1)\n",
    ),
    Seeded(
        "dropout that nobody knows of", ("random numbers are torch's",), "network.py",
        _FORWARD, "        x = nn.functional.dropout(x * self.scale, 0.1, self.training)\n",
    ),
    Seeded(
        "noise of numpy's", ("random numbers are torch's",), "network.py",
        _FORWARD,
        "        import numpy\n\n"
        "        x = x * self.scale * (1 + 0.1 * numpy.random.rand() * self.training)\n",
    ),
    Seeded(
        "weights that Python's random drew", ("fresh weights", "random numbers are torch's"),
        "network.py", "torch.ones(16)", "torch.tensor([__import__('random').random()] * 16)",
    ),
    Seeded(
        "layers in a plain list", ("weights are registered",), "network.py",
        "nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])",
        "[nn.Linear(16, 16), nn.Linear(16, 16)]",
    ),
    Seeded(
        "a weight that is no Parameter", ("weights are registered",), "network.py",
        "nn.Parameter(torch.ones(16))", "torch.ones(16, requires_grad=True)",
    ),
    Seeded(
        "half of the model behind detach()", ("gradients reach all weights",), "network.py",
        "        x = x + x.mean(1, keepdim=True)\n",
        "        x = (x + x.mean(1, keepdim=True)).detach()\n",
    ),
    Seeded(
        "a weight that nothing uses", ("gradients reach all weights",), "network.py",
        "        self.dropout = Dropout(0.1)\n",
        "        self.dropout = Dropout(0.1)\n        self.spare = nn.Linear(4, 4)\n",
    ),
    Seeded(
        "normalised over the batch", ("samples stand alone",), "network.py",
        "x = x + x.mean(1, keepdim=True)", "x = x - x.mean(0, keepdim=True)",
    ),
    Seeded(
        "a counter in an attribute", ("state is saved",), "network.py",
        _RETURN,
        "        self.steps = getattr(self, 'steps', 0) + self.training\n"
        "        return self.head(x) * (1 + 1e-3 * self.steps)\n",
    ),
    Seeded(
        "statistics in a buffer that is not saved", ("state is saved",), "network.py",
        'self.register_buffer("seen", torch.zeros(()))',
        'self.register_buffer("seen", torch.zeros(()), persistent=False)\n'
        "        self.register_forward_pre_hook(lambda m, _: [m.seen.add_(m.training)] and None)",
    ),
    Seeded(
        "a counter in a module", ("deterministic", "resumes"), "network.py",
        _RETURN,
        "        COUNT.append(self.training)\n"
        "        return self.head(x) * (1 + 1e-2 * sum(COUNT))\n\n\nCOUNT = []\n",
    ),
    Seeded(
        "an export that rounds", ("export and restore",), "work.py",
        "    def counted(self, batch):\n",
        "    def export(self, weights):\n"
        "        return {n: w.half() if w.dim() else w for n, w in weights.items()}, {}\n\n"
        "    def counted(self, batch):\n",
    ),
    Seeded(
        "scores that are means", ("scores agree with the loss",), "work.py",
        '"loss": (self.nats(outputs, batch).sum(1), units)',
        '"loss": self.nats(outputs, batch).mean(1)',
    ),
    Seeded(
        "a metric that is not measured", ("scores",), "work.py",
        '            "accuracy": (hits.sum(1), units),\n', "",
    ),
    Seeded(
        "a split that it is not made for", ("strategies",), "work.py",
        "class Workload(Simple):\n",
        "class Workload(Simple):\n"
        "    @classmethod\n"
        "    def described(cls):\n"
        "        from dataclasses import replace\n\n"
        "        return replace(super().described(), refuse_split=lambda *_: None)\n\n",
    ),
]  # fmt: skip
