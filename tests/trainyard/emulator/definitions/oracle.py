"""Explain how an execution must end, from the definition and the API's answers alone.

It shares no code with what executes. Values are taken as the steps' Metadata show them, and each
step is held to its own inputs.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

FULFIL = {
    "Completed": {"Succeeded"},
    "Failed": {"Failed"},
    "Stopped": {"Stopped"},
    "Any": {"Succeeded", "Failed", "Stopped"},
}
COMPARE = {
    "Equals": lambda left, right: left == right,
    "GreaterThan": lambda left, right: left > right,
    "LessThanOrEqualTo": lambda left, right: left <= right,
}
LOST = "the emulator ended while this execution was running"
REFERENCE = re.compile(r'"Steps\.([\w-]+)\.')
LATE = 0.1  # seconds that a step may start after another failed: both were looked at together


@dataclass(frozen=True)
class Node:
    """A step, wherever it stands: what of a loop's body is one for each item."""

    name: str
    document: dict
    branch: tuple[str, str] | None
    loop: str | None = None
    item: Any = None
    waits: tuple[tuple[str, str], ...] = ()

    @property
    def type(self) -> str:
        return self.document["Type"]


def faults(definition: dict, answer: dict, listing: list[dict]) -> list[str]:
    """Return what the steps do not explain; empty if all is explained."""
    judge = _Judge(definition, {step["StepName"]: step for step in listing})
    return judge.all(answer)


class _Judge:
    def __init__(self, definition: dict, steps: dict[str, dict]) -> None:
        self.steps, self.lost = steps, False
        self.parameters = {p["Name"]: p["DefaultValue"] for p in definition["Parameters"]}
        self.nodes = {node.name: node for node in self._nodes(definition["Steps"], None)}

    def all(self, answer: dict) -> list[str]:
        found = [f"{name} is no step of it" for name in self.steps if name not in self.nodes]
        self.lost = LOST in answer.get("FailureReason", "")
        for node in self.nodes.values():
            why = self._ran(node) if node.name in self.steps else self._missing(node)
            found += [f"{node.name}: {why}"] if why else []
        return [*found, *self._end(answer)]

    # the steps that there are

    def _nodes(self, documents: list[dict], branch: tuple[str, str] | None) -> list[Node]:
        found = []
        for document in documents:
            found.append(Node(document["Name"], document, branch, waits=_waits(document)))
            arguments = document["Arguments"]
            for key, outcome in (("IfSteps", "True"), ("ElseSteps", "False")):
                found += self._nodes(arguments.get(key, []), (document["Name"], outcome))
            if document["Type"] == "ForEach":
                found += self._children(document, branch)
        return found

    def _children(self, loop: dict, branch: tuple[str, str] | None) -> list[Node]:
        bodies = loop["Arguments"]["ForEachBody"]
        names = [body["Name"] for body in bodies]
        items = loop["Arguments"]["IterableItems"]
        items = json.loads(items["Std:Join"]["Values"][0]) if isinstance(items, dict) else items
        found = []
        for index, item in enumerate(items):
            for body in bodies:
                text = json.dumps(body)
                for other in names:
                    text = text.replace(f"Steps.{other}.", f"Steps.{other}-{index}.")
                document = json.loads(text)
                waits = tuple(w for w in _waits(document) if w[0].rpartition("-")[0] in names)
                name = f"{body['Name']}-{index}"
                found.append(Node(name, document, branch, loop["Name"], item, waits))
        return found

    # one step

    def _ran(self, node: Node) -> str | None:
        record = self.steps[node.name]
        status, reason = record["StepStatus"], record.get("FailureReason", "")
        if status not in ("Succeeded", "Failed"):
            return f"is {status}"
        if unmet := self._unmet(node):
            return f"ran, although {unmet}"
        if late := self._late(node, record):
            return f"started after {late} had failed"
        if LOST in reason:
            return None
        try:
            wanted, detail = self._derive_expected_end(node, record)
        except LookupError as error:
            return f"ran with a value that is not there: {error!r}"
        if status != wanted:
            return f"is {status}, and {wanted} is explained ({reason})"
        return None if detail in json.dumps(record, default=str) else f"does not say {detail!r}"

    def _missing(self, node: Node) -> str | None:
        if self._unmet(node) or self.lost:  # a kill came between two steps
            return None
        if node.loop and (node.loop not in self.steps or self._list_failed_nodes(node.loop)):
            return None
        if self._list_failed_nodes(node.loop) and not self._handles(node):
            return None
        return "did not run, and nothing explains it"

    def _unmet(self, node: Node) -> str | None:
        for name, trigger in node.waits:
            status = self.steps.get(name, {}).get("StepStatus", "not run")
            if status not in FULFIL[trigger]:
                return f"{name} is {status}, not {trigger}"
        if node.branch:
            condition, outcome = node.branch
            made = self.steps.get(condition, {}).get("Metadata", {}).get("Condition", {})
            if made.get("Outcome") != outcome:
                return f"{condition} is {made.get('Outcome')}"
        return None

    def _handles(self, node: Node) -> bool:
        """Whether it is there for what did not succeed."""
        return any(t != "Completed" and self._status(n) != "Succeeded" for n, t in node.waits)

    def _late(self, node: Node, record: dict) -> str | None:
        if self._handles(node):
            return None
        begun = record["StartTime"].timestamp()
        for name in self._list_failed_nodes(node.loop):
            if self.steps[name]["EndTime"].timestamp() + LATE < begun:
                return name
        return None

    def _list_failed_nodes(self, loop: str | None) -> list[str]:
        nodes = [node for node in self.nodes.values() if node.loop == loop]
        return [node.name for node in nodes if self._status(node.name) == "Failed"]

    def _status(self, name: str) -> str | None:
        return self.steps.get(name, {}).get("StepStatus")

    def _derive_expected_end(self, node: Node, record: dict) -> tuple[str, str]:
        """The status that its inputs explain, and what its record must say."""
        arguments = node.document["Arguments"]
        if node.type == "Lambda":
            return self._of_function(self._value(arguments["x"], node), arguments["how"])
        if node.type == "Callback":
            x = self._value(arguments["x"], node)
            if arguments["answer"] == "fail":
                return "Failed", f"no to {x}"
            return "Succeeded", f'"Value": "{x + 1}"'
        if node.type == "Fail":
            values = arguments["ErrorMessage"]["Std:Join"]["Values"]
            return "Failed", " ".join(str(self._value(v, node)) for v in values)
        if node.type == "Condition":
            compare = arguments["Conditions"][0]
            sides = [self._value(compare[side], node) for side in ("LeftValue", "RightValue")]
            return "Succeeded", f'"Outcome": "{COMPARE[compare["Type"]](*sides)}"'
        if node.type == "ForEach":
            return self._of_loop(node, arguments)
        if node.type == "Processing":
            script = arguments["AppSpecification"]["ContainerArguments"][0]
            return ("Succeeded", "processing-job") if script.endswith("exit 0") else ("Failed", "")
        source = arguments["Resources"]["S3"][0]["StepName"]
        return "Succeeded", f'"CleanedSteps": ["{source}"]'

    def _of_function(self, x: int, how: str) -> tuple[str, str]:
        if how == "add":
            return "Succeeded", f'"Value": "{x + 1}"'
        said = {
            "raise": f"ValueError: asked to, with {x}",
            "leave": "Runtime.ExitError",
            "nothing": "returned no output 'y'",
        }
        return "Failed", said[how]

    def _of_loop(self, node: Node, arguments: dict) -> tuple[str, str]:
        children = [each for each in self.nodes.values() if each.loop == node.name]
        ended = [self._status(each.name) for each in children]
        counts = {"Succeeded": ended.count("Succeeded"), "Failed": ended.count("Failed")}
        if counts["Failed"]:
            return "Failed", f'"FailedStepCount": {counts["Failed"]}'
        selector = arguments.get("Selector")
        if not selector:
            return "Succeeded", f'"SucceededStepCount": {len(children)}'
        body = selector["Field"]["Get"].split(".")[1]
        values = [self._output(c.name) for c in children if c.name.rpartition("-")[0] == body]
        best = max(values) if selector["Pick"] == "MaxBy" else min(values)
        return "Succeeded", f'"Index": {values.index(best)}'

    # values

    def _value(self, value: Any, node: Node) -> Any:
        if not isinstance(value, dict):
            return value
        text = value["Get"]
        if text.startswith("Parameters."):
            return self.parameters[text.partition(".")[2]]
        if text.startswith("ForEach."):
            return node.item["v"] if text.endswith(".v") else node.item
        name = text.split(".")[1]
        if ".Selected." in text:
            made = self.steps[name]["Metadata"]["ForEach"]["Selector"]
            name = f"{made['StepName']}-{made['Index']}"
        return self._output(name)

    def _output(self, name: str) -> int:
        metadata = self.steps[name]["Metadata"]
        made = metadata.get("Lambda") or metadata["Callback"]
        return int(made["OutputParameters"][0]["Value"])

    # the end

    def _end(self, answer: dict) -> list[str]:
        status, reason = answer["PipelineExecutionStatus"], answer.get("FailureReason", "")
        failed = self._list_failed_nodes(None)
        ran = [node for node in self.nodes.values() if node.name in self.steps]
        handled = {name for node in ran for name, trigger in node.waits if trigger != "Completed"}
        wanted = "Succeeded"
        if LOST in reason:
            wanted = "Failed"
        elif failed:
            wanted = "CompletedWithFailures" if set(failed) <= handled else "Failed"
        if status != wanted:
            return [f"the execution is {status}, and {wanted} is explained: {failed} {reason}"]
        unsaid = [name for name in failed if name not in reason]
        if wanted == "Failed" and unsaid and LOST not in reason and len(reason) < 1000:
            return [f"the execution's reason does not name {unsaid}: {reason}"]
        return []


def _waits(document: dict) -> tuple[tuple[str, str], ...]:
    """(step, trigger) for all that it refers to, and that its DependsOn names.

    What a reference needs has succeeded, whatever DependsOn says; a loop waits for what its body
    refers to outside of it.
    """
    arguments = dict(document["Arguments"])
    for key in ("IfSteps", "ElseSteps"):
        arguments.pop(key, None)
    bodies = arguments.get("ForEachBody", [])
    own = {body["Name"] for body in bodies}
    found = dict.fromkeys(REFERENCE.findall(json.dumps(arguments)), "Completed")
    for holder in (document, *bodies):
        for entry in holder.get("DependsOn", []):
            found.setdefault(entry["Step"], entry["Trigger"])
    return tuple((name, trigger) for name, trigger in found.items() if name not in own)
