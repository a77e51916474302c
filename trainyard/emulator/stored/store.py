"""Create, describe, list, update and delete resources that are only stored, one file each.

<state>/stored/<kind>/<name>.json

moto has these operations, in memory; it loses members (an experiment's Description), accepts a name
twice and fails on what is missing. Here a resource is described by the members that it was created
with. Its creator is not stored.
"""

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.api import ApiError
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.paging import ordered, page
from trainyard.emulator.request_shapes import check, model
from trainyard.emulator.stored.resource_kinds import KINDS, Kind, items_of

_TAGGING = frozenset({"AddTags", "ListTags", "DeleteTags"})
_PAGE = 10  # results of a page, if the request names no number: the default of most of these
_BY = {kind.name: kind for kind in KINDS}
_TRIAL, _COMPONENT = _BY["Trial"], _BY["TrialComponent"]
_CARD, _EXPERIMENT = _BY["ModelCard"], _BY["Experiment"]
Operation = Callable[[dict], dict]


class Stored:
    """Answers the operations that :meth:`owns` names. Its methods are thread-safe.

    Raises :class:`ApiError` as AWS does.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.RLock()
        self._items: dict[str, dict[str, dict]] = {kind.name: {} for kind in KINDS}
        """Kind → name → record."""
        self._operations = {k: v for kind in KINDS for k, v in self._table(kind).items()}
        self._operations |= self._special()
        for kind in KINDS:
            records = [read_json(path) for path in (root / kind.name).glob("*.json")]
            for record in sorted(records, key=lambda each: float(each["CreationTime"])):
                self._items[kind.name][record[kind.key].lower()] = record

    def owns(self, operation: str, request: dict) -> bool:
        if operation in _TAGGING:
            return self._by_arn(str(request.get("ResourceArn", ""))) is not None
        return operation in self._operations

    def handle(self, operation: str, request: dict, own: dict | None = None) -> dict:
        """Answer an operation. ``own``: members of the created resource that no client sets."""
        check(operation, request)
        with self._lock:
            return self._operations[operation](request | (own or {}))

    def records(self, kind: str) -> list[dict]:
        """Return Describe's answer for each resource of a kind, the oldest first; used by
        Search.
        """
        with self._lock:
            return [_described(_BY[kind], record) for record in self._items[kind].values()]

    # the operations that all kinds have

    def _table(self, kind: Kind) -> dict[str, Operation]:
        verbs: dict[str, Callable[[Kind, dict], dict]] = {
            "Create": self._create,
            "Describe": self._describe,
            "List": self._list,
            "Update": self._update,
            "Delete": self._delete,
        }
        found = {verb: kind.operation(verb) for verb in verbs}
        return {
            operation.name: functools.partial(verbs[verb], kind)
            for verb, operation in found.items()
            if operation
        }

    def _create(self, kind: Kind, request: dict) -> dict:
        name = request[kind.key]
        if name.lower() in self._items[kind.name]:
            raise kind.existing(name)
        now = time.time()
        record = {k: v for k, v in request.items() if k not in ("Tags", "ClientToken")}
        record |= {kind.arn_key: kind.arn(name), "CreationTime": now, "LastModifiedTime": now}
        self._save(kind, record | {"_tags": request.get("Tags", [])})
        return {kind.arn_key: record[kind.arn_key]}

    def _describe(self, kind: Kind, request: dict) -> dict:
        return _described(kind, self._find(kind, request))

    def _list(self, kind: Kind, request: dict) -> dict:
        name, members = kind.listed
        found = [r for r in self._items[kind.name].values() if self._matches(kind, r, request)]
        keys = {"CreationTime": "CreationTime", "LastModifiedTime": "LastModifiedTime"}
        found = ordered(found, request, keys | {"Name": kind.key}, "CreationTime", kind.order)
        return page(name, [_summary(kind, r, members) for r in found], request, _PAGE)

    def _update(self, kind: Kind, request: dict) -> dict:
        """Add the named entries to maps and remove those to remove; set other members."""
        record = dict(self._find(kind, request, "Update"))
        for key, value in request.items():
            if key.endswith("ToRemove"):
                old = record.get(key.removesuffix("ToRemove"), {})
                record[key.removesuffix("ToRemove")] = {
                    k: v for k, v in old.items() if k not in value
                }
            elif key != kind.key:
                merged = kind is _COMPONENT and isinstance(value, dict) and key != "Status"
                record[key] = record.get(key, {}) | value if merged else value
        self._save(kind, record | {"LastModifiedTime": time.time()})
        return _arn_for(kind, "Update", record)

    def _delete(self, kind: Kind, request: dict) -> dict:
        record = self._find(kind, request, "Delete")
        self._path(kind, record).unlink(missing_ok=True)
        del self._items[kind.name][record[kind.key].lower()]
        return _arn_for(kind, "Delete", record)

    # what one kind has

    def _special(self) -> dict[str, Operation]:
        return {
            "CreateTrial": self._create_trial,
            "AssociateTrialComponent": self._associate,
            "DisassociateTrialComponent": self._disassociate,
            "DescribeModelCard": self._describe_card,
            "UpdateModelCard": self._update_card,
            "ListModelCardVersions": self._card_versions,
            "AddTags": self._add_tags,
            "ListTags": lambda request: page(
                "Tags", self._tagged(request)[1]["_tags"], request, 50
            ),
            "DeleteTags": self._delete_tags,
        }

    def _create_trial(self, request: dict) -> dict:
        self._find(_EXPERIMENT, request)
        return self._create(_TRIAL, request)

    def _associate(self, request: dict) -> dict:
        trial, component = self._find(_TRIAL, request), self._find(_COMPONENT, request)
        trials = dict.fromkeys([*component.get("_trials", []), trial["TrialName"]])
        self._save(_COMPONENT, component | {"_trials": list(trials)})
        return {k: r[k] for k, r in (("TrialComponentArn", component), ("TrialArn", trial))}

    def _disassociate(self, request: dict) -> dict:
        trial, component = self._find(_TRIAL, request), self._find(_COMPONENT, request)
        trials = [name for name in component.get("_trials", []) if name != trial["TrialName"]]
        self._save(_COMPONENT, component | {"_trials": trials})
        return {k: r[k] for k, r in (("TrialComponentArn", component), ("TrialArn", trial))}

    def _describe_card(self, request: dict) -> dict:
        versions = self._versions(request)
        number = request.get("ModelCardVersion", len(versions))
        if not 1 <= number <= len(versions):
            name = request["ModelCardName"]
            message = f"Modelcard with name {name} and version: {number} does not exist"
            raise ApiError("ResourceNotFound", message)
        return _described(_CARD, versions[number - 1])

    def _update_card(self, request: dict) -> dict:
        """Create a new version of the card."""
        record = self._find(_CARD, request, "Update")
        earlier = [*record.get("_versions", []), {k: v for k, v in record.items() if k[0] != "_"}]
        self._save(_CARD, record | {"_versions": earlier})
        return self._update(_CARD, request)

    def _card_versions(self, request: dict) -> dict:
        name, members = items_of(model().operation_model("ListModelCardVersions"))
        found = [v for v in self._versions(request) if self._matches(_CARD, v, request)]
        by = {"Version": "ModelCardVersion"}
        found = ordered(found, request, by, "Version", "Ascending")
        return page(name, [_summary(_CARD, v, members) for v in found], request, _PAGE)

    def _versions(self, request: dict) -> list[dict]:
        record = self._find(_CARD, request)
        versions = [*record.get("_versions", []), record]
        return [v | {"ModelCardVersion": n} for n, v in enumerate(versions, start=1)]

    # tags

    def _add_tags(self, request: dict) -> dict:
        kind, record = self._tagged(request)
        tags = {tag["Key"]: tag for tag in [*record["_tags"], *request["Tags"]]}
        self._save(kind, record | {"_tags": list(tags.values())})
        return {"Tags": list(tags.values())}

    def _delete_tags(self, request: dict) -> dict:
        kind, record = self._tagged(request)
        left = [tag for tag in record["_tags"] if tag["Key"] not in request["TagKeys"]]
        self._save(kind, record | {"_tags": left})
        return {}

    def _tagged(self, request: dict) -> tuple[Kind, dict]:
        kind = self._by_arn(request["ResourceArn"])
        assert kind is not None  # owns has asked
        return kind, self._find(kind, {kind.key: request["ResourceArn"]})

    def _by_arn(self, arn: str) -> Kind | None:
        resource = arn.rpartition(":")[2].partition("/")[0]
        return next((kind for kind in KINDS if kind.resource == resource), None)

    # inside

    def _find(self, kind: Kind, request: dict, verb: str = "Describe") -> dict:
        """Return the record with that name or ARN."""
        name = request[kind.key].rpartition("/")[2].lower()
        if name not in self._items[kind.name]:
            raise kind.missing(name, verb)
        return self._items[kind.name][name]

    def _path(self, kind: Kind, record: dict) -> Path:
        return self._root / kind.name / f"{record[kind.key].lower()}.json"

    def _save(self, kind: Kind, record: dict) -> None:
        write_json(self._path(kind, record), record)
        self._items[kind.name][record[kind.key].lower()] = record

    def _matches(self, kind: Kind, record: dict, request: dict) -> bool:
        made, changed = record["CreationTime"], record["LastModifiedTime"]
        return (
            request.get("NameContains", "").lower() in record[kind.key].lower()
            and request.get("CreationTimeAfter", made) <= made
            and request.get("CreationTimeBefore", made) >= made
            and request.get("CreatedAfter", made) <= made
            and request.get("CreatedBefore", made) >= made
            and request.get("LastModifiedTimeAfter", changed) <= changed
            and request.get("LastModifiedTimeBefore", changed) >= changed
            and request.get("ModelCardStatus") in (None, record.get("ModelCardStatus"))
            and request.get("EndpointName") in (None, _endpoint(record))
            and self._belongs(kind, record, request)
        )

    def _belongs(self, kind: Kind, record: dict, request: dict) -> bool:
        """Return whether a trial or component belongs to the requested experiment, trial or
        component.
        """
        experiment, trial = request.get("ExperimentName"), request.get("TrialName")
        trials = record.get("_trials", []) if kind is _COMPONENT else [record.get("TrialName")]
        of = [
            t["ExperimentName"] for t in self._items["Trial"].values() if t["TrialName"] in trials
        ]
        component = self._items["TrialComponent"].get(
            request.get("TrialComponentName", "").lower(), {}
        )
        return (
            (experiment is None or experiment in of)
            and (trial is None or trial in trials)
            and ("TrialComponentName" not in request or trials[0] in component.get("_trials", []))
            and request.get("SourceArn") in (None, record.get("Source", {}).get("SourceArn"))
        )


def _described(kind: Kind, record: dict) -> dict:
    """Return members that have a value; the creator is not known."""
    nobody: dict = {key: {} for key in ("CreatedBy", "LastModifiedBy") if key in kind.described}
    shown = {"DisplayName": record[kind.key]} if "DisplayName" in kind.described else {}
    return nobody | shown | {key: record[key] for key in record if key in kind.described}


def _summary(kind: Kind, record: dict, members: frozenset[str]) -> dict:
    """Return a list's item; a job definition gets the names that a schedule has for it."""
    renamed = {
        "MonitoringJobDefinitionName": record[kind.key],
        "MonitoringJobDefinitionArn": record[kind.arn_key],
        "EndpointName": _endpoint(record),
        "TrialComponentSource": record.get("Source"),
        "DisplayName": record[kind.key],  # the API reference's default
    }
    whole = renamed | record
    return {key: whole[key] for key in whole if key in members and whole[key] is not None}


def _endpoint(record: dict) -> str | None:
    """Return the endpoint that a job definition examines."""
    inputs = [v for k, v in record.items() if k.endswith("JobInput")]
    return next((i.get("EndpointInput", {}).get("EndpointName") for i in inputs), None)


def _arn_for(kind: Kind, verb: str, record: dict) -> dict:
    """Return the ARN, if the operation's answer has it."""
    operation = kind.operation(verb)
    answered = operation.output_shape if operation else None
    return {kind.arn_key: record[kind.arn_key]} if answered and answered.members else {}
