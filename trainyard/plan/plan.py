"""A plan: what an upsert would change, drift, what the next run would do, and what that may cost.

Only reads. The SDK is not needed here: it compiled the definition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

from botocore.exceptions import ClientError

from pipelines.approval import ledger
from pipelines.approval.champion import champion_parameters
from pipelines.approval.ledger import Look
from pipelines.compiling.assets import Asset
from pipelines.compiling.compiled import Definition
from pipelines.deploying import records
from pipelines.deploying.lock import Lock
from pipelines.deploying.storage import listing, same
from trainyard.language.parameters import values
from trainyard.plan import deployed
from trainyard.plan.caching import Outcome, predict
from trainyard.plan.cost import Cost, Total, Verdict, check_budget, estimate, total
from trainyard.plan.deployed import Deployed, State
from trainyard.plan.diff import Diff, compare
from trainyard.plan.fields import CODE
from trainyard.plan.history import History
from trainyard.plan.overwritten import Overwritten, overwritten
from trainyard.plan.prices import Prices, load
from trainyard.service import client, error_code, service_errors

FILES = 3  # names of changed files in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Whether the deployed pipeline is what an upsert made it."""

    kind: Literal["none", "unknown", "edited", "interrupted"]
    """edited: it is no state that was recorded. unknown: nothing was ever recorded. interrupted:
    it is no such state, but an upsert holds the lock, or died with it."""

    diff: Diff = Diff()
    """From the last recorded state to the deployed one."""

    by: str = ""
    """Who made the last change, or holds the lock."""

    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a plan shows."""

    wanted: State
    region: str
    deployed: Deployed | None
    diff: Diff
    drift: Drift
    outcomes: tuple[Outcome, ...]
    costs: tuple[Cost, ...]
    total: Total
    prices: Prices
    budget: Verdict
    assets: tuple[Asset, ...]
    made: datetime
    overwritten: tuple[Overwritten, ...] = ()
    """Data that the cache does not know to be new."""
    look: Look | None = None
    """Which look at its test split the next run would be; None where nothing is compared."""


def make(definition: Definition) -> Plan:
    """Compare ``definition`` with what is deployed.

    Raises:
        ServiceError: AWS refused, or could not be reached.
    """
    with service_errors(f"planning pipeline {definition.name}"):
        sagemaker, s3 = (client(name, definition.region) for name in ("sagemaker", "s3"))
        there = deployed.describe(sagemaker, definition.name)
        wanted = deployed.wanted(definition)
        diff = compare(there.state if there else None, wanted, _CodeNotes(s3, definition))
        drift = _drift(s3, definition, there) if there and diff else Drift(kind="none")
        history = History(sagemaker, definition.name if there else None)
        prices = load(definition.region)
        told = champion_parameters(sagemaker, wanted.document, {}, None)
        look = _look(s3, wanted.document, told)
        told |= {ledger.PARAMETER: str(look.number)} if look else {}
        plan = complete(definition, there, diff, drift, history, prices, told, look)
        document = started_with(wanted.document, told)
        return replace(plan, overwritten=tuple(overwritten(s3, document, plan.outcomes)))


def complete(
    definition: Definition,
    there: Deployed | None,
    diff: Diff,
    drift: Drift,
    history: History,
    prices: Prices,
    told: Mapping[str, str] = MappingProxyType({}),
    look: Look | None = None,
) -> Plan:
    """The rest of a plan: what the next run does, and its cost.

    ``told``: the parameters that ``pipelines.start`` would give that run; ``look``: one of them.
    """
    wanted, now = deployed.wanted(definition), datetime.now(UTC)
    document = started_with(wanted.document, told)
    outcomes = predict(document, wanted.name, history, now)
    costs = estimate(document, outcomes, history, prices)
    return Plan(
        wanted=wanted,
        region=definition.region,
        deployed=there,
        diff=diff,
        drift=drift,
        outcomes=tuple(outcomes),
        costs=tuple(costs),
        total=total(document, costs),
        prices=prices,
        budget=check_budget(definition.budget, costs, prices),
        assets=definition.assets,
        made=now,
        look=look,
    )


def _look(s3: Any, document: Mapping[str, Any], told: Mapping[str, str]) -> Look | None:
    """The look that the next run would be; the first where there is no bucket yet."""
    try:
        return ledger.look(s3, document, told)
    except ClientError as error:
        if error_code(error) == "NoSuchBucket":
            return None
        raise


def started_with(document: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The definition with these values as its parameters' defaults."""
    typed = values(document, given)
    changed = [
        entry | {"DefaultValue": typed[entry["Name"]]} if entry["Name"] in given else entry
        for entry in document.get("Parameters", ())
    ]
    return {**document, "Parameters": changed}


def _drift(s3: Any, definition: Definition, there: Deployed) -> Drift:
    where = records.place(definition)
    found = records.listed(s3, where)
    if there.state.fingerprint in found.recorded:
        return Drift(kind="none")
    holder = Lock(s3, where, definition.name, 0).holder() if found.locked else None
    if holder:
        return Drift(kind="interrupted", by=holder.who, since=holder.since)
    if found.last is None:
        return Drift(kind="unknown")
    diff = compare(records.read(s3, where, found.last), there.state)
    return Drift(kind="edited", diff=diff, by=there.by, since=there.changed)


class _CodeNotes:
    """Which files of a code folder changed: those of the checkout against those in S3."""

    def __init__(self, s3: Any, definition: Definition) -> None:
        self._s3 = s3
        self._assets = {asset.uri: asset for asset in definition.assets}
        self._kms_key = definition.kms_key

    def __call__(self, old: str, new: str) -> str:
        asset, where = self._assets.get(new), CODE.fullmatch(old)
        if asset is None or where is None:
            return ""
        try:
            there = dict(listing(self._s3, where["bucket"], where["key"]))
        except ClientError as error:  # another account's, or a bucket that is gone
            return f"the old files cannot be listed ({error_code(error)})"
        return changed_files(there, asset.files, self._kms_key) if there else ""


def changed_files(
    there: Mapping[str, tuple[int, str]], files: Mapping[str, bytes], kms_key: str | None
) -> str:
    """``2 files: ~ training/loop.py, + training/new.py``; ``there``: name → (bytes, ETag)."""
    signs = {name: "~" for name, body in files.items() if not same(there.get(name), body, kms_key)}
    signs |= {name: "+" for name in files if name not in there}
    signs |= {name: "-" for name in there if name not in files}
    names = [f"{signs[name]} {name}" for name in sorted(signs)]
    more = [f"{len(names) - FILES} more"] if len(names) > FILES else []
    by_size = ", told by their sizes alone: ETags under KMS are no MD5" if kms_key else ""
    count = f"{len(names)} file{'' if len(names) == 1 else 's'}"
    return f"{count}: {', '.join([*names[:FILES], *more])}{by_size}"
