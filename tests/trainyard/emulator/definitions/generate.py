"""Random definitions of all step types that run in an instant, drawn by hypothesis."""

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.trainyard.emulator.definitions.service import IMAGE, ROLE

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:random"
SOURCE = """
import os

def answer(event, context):
    if event["how"] == "raise":
        raise ValueError(f"asked to, with {event['x']}")
    if event["how"] == "leave":
        os._exit(3)
    return {} if event["how"] == "nothing" else {"y": event["x"] + 1}
"""
HOWS = ("add",) * 12 + ("raise", "leave", "nothing")
TRIGGERS = ("Completed",) * 6 + ("Failed", "Any", "Stopped")
OUTPUT = {"OutputName": "y", "OutputType": "Integer"}
Draw = Callable[[st.SearchStrategy[Any]], Any]


def definitions(count: int, number: int, processing: bool = True) -> list[dict]:
    """``count`` different definitions, the same for the same ``number``."""
    found: dict[str, dict] = {}

    @seed(number)
    @settings(max_examples=4 * count, database=None, phases=[Phase.generate], deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(_definition(processing))
    def collect(definition: dict) -> None:
        found.setdefault(json.dumps(definition), definition)

    collect()
    chosen = list(found.values())
    random.Random(number).shuffle(chosen)  # hypothesis draws the smallest ones first
    return chosen[:count]


@st.composite
def _definition(draw: Draw, processing: bool) -> dict:
    builder = _Builder(draw, processing)
    steps = builder.steps(draw(st.integers(1, 6)), [])
    parameter = {"Name": "P", "Type": "Integer", "DefaultValue": draw(st.integers(0, 9))}
    head = {"Version": "2020-12-01", "Metadata": {}, "Parameters": [parameter]}
    return head | {"Steps": draw(st.permutations(steps))}


class _Builder:
    """Draws steps; ``known`` are those that a step may refer to: name → type."""

    def __init__(self, draw: Draw, processing: bool) -> None:
        self.draw, self.count, self.processing = draw, 0, processing

    def steps(self, number: int, known: list[tuple[str, str]], deep: int = 0) -> list[dict]:
        known, found = list(known), []
        for _ in range(number):
            step = self.step(known, deep)
            found.append(step)
            if step["Type"] != "Fail":
                known.append((step["Name"], _offers(step)))
        return found

    def step(self, known: list[tuple[str, str]], deep: int) -> dict:
        kinds = [self.function] * 10 + [self.callback] * 2 + [self.loop] * 2 + [self.fail]
        kinds += [self.condition] * 3 if deep < 2 else []
        kinds += [self.cleanup] * 16 if any(kind == "Processing" for _, kind in known) else []
        if self.processing and self.draw(st.integers(0, 19)) == 0:
            kinds = [self.process]
        step = self.draw(st.sampled_from(kinds))(known, deep)
        if known and self.draw(st.integers(0, 3)) == 0:
            name = self.draw(st.sampled_from(known))[0]
            trigger = self.draw(st.sampled_from(TRIGGERS))
            step.setdefault("DependsOn", []).append({"Step": name, "Trigger": trigger})
        return step

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def value(self, known: list[tuple[str, str]]) -> Any:
        """A number, or what will be one."""
        ways: list[Any] = [self.draw(st.integers(-5, 20)), {"Get": "Parameters.P"}]
        offers = [(n, kind) for n, kind in known if kind in ("", "Selected.")]
        ways += [{"Get": f"Steps.{n}.{kind}OutputParameters['y']"} for n, kind in offers]
        return self.draw(st.sampled_from(ways))

    def function(self, known: list[tuple[str, str]], deep: int, x: Any = None) -> dict:
        how = self.draw(st.sampled_from(HOWS))
        arguments = {"x": self.value(known) if x is None else x, "how": how}
        step = {"Name": self.name("L"), "Type": "Lambda", "FunctionArn": FUNCTION}
        return step | {"Arguments": arguments, "OutputParameters": [OUTPUT]}

    def callback(self, known: list[tuple[str, str]], deep: int) -> dict:
        answer = self.draw(st.sampled_from(("succeed", "succeed", "succeed", "fail")))
        arguments = {"x": self.value(known), "answer": answer}
        step = {"Name": self.name("W"), "Type": "Callback", "SqsQueueUrl": "QUEUE"}
        return step | {"Arguments": arguments, "OutputParameters": [OUTPUT]}

    def fail(self, known: list[tuple[str, str]], deep: int) -> dict:
        message = {"Std:Join": {"On": " ", "Values": ["failed on", self.value(known)]}}
        return {"Name": self.name("F"), "Type": "Fail", "Arguments": {"ErrorMessage": message}}

    def condition(self, known: list[tuple[str, str]], deep: int) -> dict:
        kind = self.draw(st.sampled_from(("Equals", "GreaterThan", "LessThanOrEqualTo")))
        compare = {"Type": kind, "LeftValue": self.value(known), "RightValue": self.value(known)}
        name = self.name("C")
        branches = {
            key: self.steps(self.draw(st.integers(0, 2)), known, deep + 1)
            for key in ("IfSteps", "ElseSteps")
        }
        arguments = {"Conditions": [compare], **branches}
        return {"Name": name, "Type": "Condition", "Arguments": arguments}

    def loop(self, known: list[tuple[str, str]], deep: int) -> dict:
        name = self.name("E")
        numbers = self.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
        as_text = {"Std:Join": {"On": "", "Values": [json.dumps([{"v": n} for n in numbers])]}}
        ways = ((numbers, "CurrentItem"), (as_text, "CurrentItem.v"))
        items, item = self.draw(st.sampled_from(ways))
        first = self.function(known, deep, {"Get": f"ForEach.{item}"})
        body = [first]
        if self.draw(st.booleans()):
            of_first = {"Get": f"Steps.{first['Name']}.OutputParameters['y']"}
            body.append(self.function(known, deep, of_first))
        arguments = {"IterableItems": items, "ForEachBody": body,
                     "MaxConcurrency": self.draw(st.integers(1, 3))}  # fmt: skip
        if self.draw(st.booleans()):
            field = {"Get": f"IterationOutput.{body[-1]['Name']}.OutputParameters['y']"}
            pick = self.draw(st.sampled_from(("MaxBy", "MinBy")))
            arguments["Selector"] = {"Pick": pick, "Field": field}
        return {"Name": name, "Type": "ForEach", "Arguments": arguments}

    def process(self, known: list[tuple[str, str]], deep: int) -> dict:
        name = self.name("P")
        code = self.draw(st.sampled_from((0, 0, 0, 4)))
        script = f"echo x > /opt/ml/processing/out/x.txt; exit {code}"
        where = {"S3Uri": f"s3://random/{name}", "LocalPath": "/opt/ml/processing/out"}
        output = {"OutputName": "out", "S3Output": where | {"S3UploadMode": "EndOfJob"}}
        machine = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
        program = {"ImageUri": IMAGE, "ContainerEntrypoint": ["/bin/bash", "-c"],
                   "ContainerArguments": [script]}  # fmt: skip
        arguments = {
            "RoleArn": ROLE,
            "AppSpecification": program,
            "ProcessingResources": {"ClusterConfig": machine},
            "ProcessingOutputConfig": {"Outputs": [output]},
        }
        return {"Name": name, "Type": "Processing", "Arguments": arguments}

    def cleanup(self, known: list[tuple[str, str]], deep: int) -> dict:
        source = self.draw(st.sampled_from([n for n, kind in known if kind == "Processing"]))
        resources = {"S3": [{"StepName": source, "S3Uris": [f"s3://random/{source}/x.txt"]}]}
        step = {"Name": self.name("D"), "Type": "Cleanup", "Arguments": {"Resources": resources}}
        return step | {"DependsOn": [{"Step": source, "Trigger": "Any"}]}


def _offers(step: dict) -> str:
    """What stands before OutputParameters in a reference to it; else its type."""
    if step["Type"] in ("Lambda", "Callback"):
        return ""
    if step["Type"] == "ForEach" and "Selector" in step["Arguments"]:
        return "Selected."
    return step["Type"]
