"""What the ranks measured, and whom it says to be slow or wrong. No torch here: figures only."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median_high

from training.health import expected
from training.health.finding import Finding

OF_BEST = 0.7
"""A GPU that multiplies at less than this share of the best measured is slow. One shape, not
the best of many, with random numbers reaches some 0.8 to 0.95."""

OF_OTHERS = 0.85
"""The same beside the median of the job's GPUs of its kind. Healthy ones differ by up to 8 %
(Sinha et al. 2022, "Not All GPUs Are Created Equal", SGEMM on V100 and A100)."""

OF_LINKS = 0.5
"""All-reduce within a machine, beside the best measured: without NVLink it is a tenth of that."""

OF_MACHINES = 0.7
"""The same beside the median of the job's machines with this GPU."""

OF_FABRIC = 0.3
"""All-reduce over all machines, beside what their EFA carries: this finds EFA that is off, which
leaves a tenth or less, and not one adapter of many that is slow."""

REPLACE = (
    "replace the instance: start the job again, a restart inside the job comes back to this machine"
)
MANY = 8  # ranks or machines that a message names


@dataclass(frozen=True, slots=True)
class Figures:
    """One rank's.

    Attributes:
        device: its name as the driver gives it; empty on a CPU, where nothing is measured.
        matmul: operations a second.
        wrong: elements of a product, known beforehand, that came out otherwise.
        digest: sum of the bits of a product of the same random numbers on every rank.
        within: bus bandwidth of the all-reduce within its machine, bytes a second; None alone.
        over: the same over all ranks.
        gpus: of its machine.
        settings: what its machine's EFA settings are found to be.
    """

    rank: int
    host: str
    local_rank: int = 0
    instance: str = ""
    device: str = ""
    matmul: float = 0.0
    wrong: int = 0
    digest: int = 0
    within: float | None = None
    over: float | None = None
    gpus: int = 0
    settings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """``rank 5 (NVIDIA H100 80GB HBM3, local rank 1 on algo-2)``."""
        return f"rank {self.rank} ({self.device}, local rank {self.local_rank} on {self.host})"


def findings(every: list[Figures]) -> list[Finding]:
    """All that is wrong: GPUs that compute wrong, or slowly; links; the fabric; its settings."""
    kinds: defaultdict[str, list[Figures]] = defaultdict(list)
    for one in every:
        kinds[one.device].append(one)
    found: list[Finding] = []
    for device, alike in kinds.items():
        if device:
            found += [*_wrong(alike), *_slow(device, alike), *_links(device, alike)]
    return [*found, *_fabric(every), *_settings(every)]


def _wrong(alike: list[Figures]) -> Iterator[Finding]:
    """Those that computed something else than they had to, or than the others did.

    cuBLAS gives the same bits on GPUs of one kind (its documentation, "Results reproducibility").
    """
    usual, times = Counter(one.digest for one in alike).most_common(1)[0]
    for one in alike:
        if one.wrong:
            what = f"{one.name} computes wrong: {one.wrong} elements of a product that is known"
            yield Finding(what, REPLACE)
        elif one.digest != usual and times > len(alike) / 2:
            what = (
                f"{one.name} computes wrong: the product of the same numbers differs from that of "
                f"{times} of {len(alike)} GPUs of its kind"
            )
            yield Finding(what, REPLACE)


def _slow(device: str, alike: list[Figures]) -> Iterator[Finding]:
    best, usual = expected.rates(device).matmul, median_high(one.matmul for one in alike)
    least = max(OF_OTHERS * usual, OF_BEST * (best or 0))
    beside = [f"the median of {len(alike)} such GPUs here is {usual / 1e12:.3g}"]
    if best:
        beside.append(f"the best measured of one is {best / 1e12:.4g}")
    for one in alike:
        if one.matmul < least:
            rate = f"{one.name} is slow: it multiplies at {one.matmul / 1e12:.3g} TFLOP/s, "
            yield Finding(rate + " and ".join(beside), REPLACE)


def _links(device: str, alike: list[Figures]) -> Iterator[Finding]:
    """Machines whose GPUs exchange slowly; which of their links it is, the figure does not say."""
    machines: defaultdict[str, list[float]] = defaultdict(list)
    for one in alike:
        if one.within is not None:
            machines[one.host].append(one.within)
    if not machines:
        return
    rates = {host: median_high(values) for host, values in machines.items()}
    best, usual = expected.rates(device).all_reduce, median_high(rates.values())
    least = max(OF_MACHINES * usual, OF_LINKS * (best or 0))
    beside = f"the median of {len(rates)} such machines is {usual / 1e9:.3g}"
    if best:
        beside += f", the best measured of one {best / 1e9:.4g}"
    for host, rate in rates.items():
        if rate < least:
            ranks = _list([str(one.rank) for one in alike if one.host == host])
            what = (
                f"the GPUs of {host} ({device}, ranks {ranks}) exchange slowly: all-reduce at "
                f"{rate / 1e9:.3g} GB/s, {beside}"
            )
            yield Finding(what, f"look at nvidia-smi nvlink -s there; {REPLACE}")


def _fabric(every: list[Figures]) -> Iterator[Finding]:
    first, hosts = every[0], {one.host for one in every}
    carried = expected.fabric(first.instance)
    if first.over is None or carried is None or len(hosts) == 1:
        return
    used = sum(one.host == first.host for one in every) / (first.gpus or 1)
    reach = min(carried * min(used, 1), expected.rates(first.device).all_reduce or carried)
    if first.over < OF_FABRIC * reach:
        yield Finding(
            f"the all-reduce over {len(every)} GPUs of {len(hosts)} machines reaches "
            f"{first.over / 1e9:.3g} GB/s, and EFA of {first.instance} carries {carried / 1e9:.4g}",
            "set NCCL_DEBUG=INFO in the job's environment: NET/OFI is EFA, NET/Socket is TCP",
        )


def _settings(every: list[Figures]) -> Iterator[Finding]:
    """What is found on several machines is said once. A machine alone needs no fabric."""
    hosts: defaultdict[Finding, list[str]] = defaultdict(list)
    for one in every:
        for finding in one.settings:
            hosts[finding].append(one.host)
    if len({one.host for one in every}) > 1:
        for finding, found in hosts.items():
            yield Finding(f"{_list(found)}: {finding.what}", finding.fix, finding.sure)


def told(every: list[Figures]) -> str:
    """The result in one line; empty where nothing was looked at."""
    parts = []
    if measured := [one for one in every if one.device]:
        rates = [one.matmul / 1e12 for one in measured]
        parts.append(f"{len(rates)} GPUs multiply at {min(rates):.3g} to {max(rates):.3g} TFLOP/s")
        if within := [one.within / 1e9 for one in measured if one.within is not None]:
            parts.append(f"all-reduce within a machine {min(within):.3g} to {max(within):.3g} GB/s")
        if (over := every[0].over) is not None:
            parts.append(f"over all {over / 1e9:.3g} GB/s")
    if len({one.host for one in every}) > 1 and expected.fabric(every[0].instance):
        fit = "do not fit" if any(one.settings for one in every) else "fit"
        parts.append(f"EFA's settings {fit} {every[0].instance}")
    return ", ".join(parts)


def _list(names: list[str]) -> str:
    more = len(names) - MANY
    return ", ".join(names[:MANY]) + (f" and {more} more" if more > 0 else "")
