"""How often machines are lost, and what they cost and are waited for on spot: published ranges.

``interruptions.json`` has each figure with its source and date; what is a guess says so there, and
here by the sentences that come with a figure. What an account has seen of its own says better, and
takes their place wherever a function below is not asked.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainyard.foresight.spread import Spread

HOURS_A_MONTH = 730
TABLE: Mapping[str, Any] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)


def between_failures(nodes: int) -> Spread:
    """Hours of running between two failures of a job on ``nodes`` machines: one machine's loss
    stops all, so they are as many times shorter. The spread is that of the published rates, which
    are of nodes with 8 GPUs; a smaller one is taken to fail as often.
    """
    rates = sorted(one["rate"] for one in TABLE["failures"])
    hours = [24_000 / (rate * nodes) for rate in rates]
    return Spread(hours[-1], hours[len(hours) // 2], hours[0])


def between_losses(instance_type: str, nodes: int) -> tuple[Spread, list[str]]:
    """Hours of running between two losses of spot machines, and what of it is a guess.

    Who keeps asking for machines that are hard to have loses one within hours (spot-traces); AWS's
    advisor counts a few percent of all instances in a month, which says weeks. The first is taken
    as the lower decile and the second as the upper one: that the truth is as often nearer to the
    one as to the other, by a factor, is a guess.
    """
    probes, bands = TABLE["probes"], _bands(instance_type)
    often = math.sqrt(probes["low"] * probes["high"])
    monthly = min((one["low"] + one["high"]) / 200 for one in bands)
    rarely = HOURS_A_MONTH / -math.log1p(-monthly)
    guessed = [
        f"between {often:.1f} and {rarely:,.0f} hours from one spot loss of a machine to the next: "
        "sources that differ by that much, and a median between them"
    ]
    if not _family_known(instance_type):
        guessed.append(f"the advisor's band of {instance_type} is that of all other families")
    return Spread(often, math.sqrt(often * rarely), rarely).times(1 / nodes), guessed


def spot_share(instance_type: str, region: str) -> tuple[Spread, list[str]]:
    """Spot price over the price on demand, and what of it is a guess.

    It is EC2's: SageMaker publishes none of its own, and bills what is saved as fewer seconds. The
    least and the most that was seen of the type are the deciles; of a type without, of its family,
    or of all.
    """
    seen = TABLE["shares"]
    guessed = ["SageMaker's spot price is the same share of its price on demand as EC2's"]
    here = [one for one in seen if (one["type"], one["region"]) == (instance_type, region)]
    if not here:
        family = [one for one in seen if _family(one["type"]) == _family(instance_type)]
        of_type = [one for one in seen if one["type"] == instance_type]
        here = of_type or family or seen
        whose = "other regions" if of_type else "its family" if family else "all types"
        guessed.append(f"the spot price of {instance_type} in {region} is that of {whose}")
    low, high = min(one["low"] for one in here), max(one["high"] for one in here)
    return Spread(low, math.sqrt(low * high), high), guessed


def wait(market: str) -> Spread:
    """Seconds until the machines of a job are there, ``on demand`` or ``spot``: a guess."""
    return _three(TABLE["waits"][market])


def start() -> Spread:
    """Seconds from the machines to the first step, without the checkpoint's load: a guess."""
    return _three(TABLE["starts"])


def either(*spreads: Spread) -> Spread:
    """Hours between interruptions of several causes together: their rates add up."""
    rates = (tuple(1 / value for value in (s.p10, s.p50, s.p90)) for s in spreads)
    return Spread(*(1 / sum(each) for each in zip(*rates, strict=True)))


def _three(entry: Mapping[str, float]) -> Spread:
    return Spread(entry["low"], entry["middle"], entry["high"])


def _family(instance_type: str) -> str:
    return instance_type.removeprefix("ml.").partition(".")[0]


def _family_known(instance_type: str) -> bool:
    return any(one["family"] == _family(instance_type) for one in TABLE["losses"])


def _bands(instance_type: str) -> Iterable[Mapping[str, Any]]:
    known = [one for one in TABLE["losses"] if one["family"] == _family(instance_type)]
    return known or TABLE["losses"]
