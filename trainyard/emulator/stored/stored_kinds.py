"""Resources that SageMaker only stores: models, configurations, cards, job definitions,
experiments.
"""

from pathlib import Path

from trainyard.emulator.api import ApiError
from trainyard.emulator.paging import page, sort_items
from trainyard.emulator.request_shapes import model
from trainyard.emulator.stored.resource_kinds import KINDS, Kind, items_of
from trainyard.emulator.stored.store import Operation, Store, describe_record, endpoint, summary

_BY = {kind.name: kind for kind in KINDS}
_TRIAL, _COMPONENT = _BY["Trial"], _BY["TrialComponent"]
_CARD, _EXPERIMENT = _BY["ModelCard"], _BY["Experiment"]


class ResourceStore(Store):
    """All of these in a state directory, with what experiments and cards have beside."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, KINDS)

    def records(self, kind: str) -> list[dict]:
        """Return Describe's answer for each resource of a kind, the oldest first; used by
        Search.
        """
        with self._lock:
            return [describe_record(_BY[kind], record) for record in self._items[kind].values()]

    def _special(self) -> dict[str, Operation]:
        return {
            "CreateTrial": self._create_trial,
            "AssociateTrialComponent": self._associate,
            "DisassociateTrialComponent": self._disassociate,
            "DescribeModelCard": self._describe_card,
            "UpdateModelCard": self._update_card,
            "ListModelCardVersions": self._card_versions,
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
        return describe_record(_CARD, versions[number - 1])

    def _update_card(self, request: dict) -> dict:
        """Create a new version of the card."""
        record = self._find(_CARD, request, "Update")
        earlier = [*record.get("_versions", []), {k: v for k, v in record.items() if k[0] != "_"}]
        self._save(_CARD, record | {"_versions": earlier})
        return self._update(_CARD, request)

    def _card_versions(self, request: dict) -> dict:
        name, members = items_of(model().operation_model("ListModelCardVersions"))
        versions = [v for v in self._versions(request) if self._matches(_CARD, v, request)]
        by = {"Version": "ModelCardVersion"}
        versions = sort_items(versions, request, by, "Version", "Ascending")
        return page(name, [summary(_CARD, v, members) for v in versions], request, _CARD.page)

    def _versions(self, request: dict) -> list[dict]:
        record = self._find(_CARD, request)
        versions = [*record.get("_versions", []), record]
        return [v | {"ModelCardVersion": n} for n, v in enumerate(versions, start=1)]

    def _matches(self, kind: Kind, record: dict, request: dict) -> bool:
        return (
            super()._matches(kind, record, request)
            and request.get("ModelCardStatus") in (None, record.get("ModelCardStatus"))
            and request.get("EndpointName") in (None, endpoint(record))
            and self._belongs(kind, record, request)
        )

    def _belongs(self, kind: Kind, record: dict, request: dict) -> bool:
        """Return whether a trial or component belongs to the requested experiment, trial or
        component.
        """
        experiment, trial = request.get("ExperimentName"), request.get("TrialName")
        trials = record.get("_trials", []) if kind is _COMPONENT else [record.get("TrialName")]
        experiments = [
            t["ExperimentName"] for t in self._items["Trial"].values() if t["TrialName"] in trials
        ]
        component = self._items["TrialComponent"].get(
            _COMPONENT.arn(request.get("TrialComponentName", "")), {}
        )
        return (
            (experiment is None or experiment in experiments)
            and (trial is None or trial in trials)
            and ("TrialComponentName" not in request or trials[0] in component.get("_trials", []))
            and request.get("SourceArn") in (None, record.get("Source", {}).get("SourceArn"))
        )
