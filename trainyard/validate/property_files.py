"""Property files: declared by a Processing step, each over an output that the step has."""

from collections.abc import Iterator
from typing import Any

from trainyard.language.expressions import Reference
from trainyard.language.step_types import step_type
from trainyard.language.steps import Step
from trainyard.validate.findings import Finding
from trainyard.validate.location import REFUSED, Place, suggestion

PASSING = "developer guide: Pass Data Between Steps"


def findings(step: Step) -> Iterator[Finding]:
    """Each names an output that the step has, and has a name of its own."""
    config = step.arguments.get("ProcessingOutputConfig")
    outputs = config.get("Outputs") if isinstance(config, dict) else None
    names = (
        [o.get("OutputName") for o in outputs or [] if isinstance(o, dict)]
        if isinstance(outputs, list)
        else []
    )
    seen: set[str] = set()
    for index, file in enumerate(_files(step)):
        place = Place(step.name, step.path).at("PropertyFiles", index)
        output, name = file.get("OutputName"), file.get("PropertyFileName")
        if isinstance(output, str) and output not in names:
            yield place.at("OutputName").error(
                "property-file-output",
                f"step {step.name!r} has no output {output!r}",
                why="the file is never found, and JsonGet fails after the job has run",
                fix=suggestion(output, [str(n) for n in names]),
                source="SDK 3.27: Step._validate_json_get_property_file_reference",
            )
        if isinstance(name, str) and name in seen:
            yield place.at("PropertyFileName").error(
                "duplicate-name",
                f"a second property file is called {name!r}",
                why=f"{REFUSED}, or one of them is never read",
                fix="rename one of them",
                source=PASSING,
            )
        seen.add(str(name))
        yield from _file_path(file.get("FilePath"), place.at("FilePath"))


def _file_path(path: Any, place: Place) -> Iterator[Finding]:
    if isinstance(path, str) and (path.startswith(("/", "s3://")) or ".." in path.split("/")):
        yield place.error(
            "property-file-path",
            f"{path!r}: expected a path relative to the output's folder",
            why="the file is looked for under the output's S3 prefix and is not found",
            fix="write the file's name in the output's folder, such as evaluation.json",
            source=PASSING,
        )


def declared(reference: Reference, target: Step, place: Place) -> Iterator[Finding]:
    """Whether ``target`` has the property file that ``reference`` names."""
    if "PropertyFiles" not in step_type(target.type).fields:
        yield place.error(
            "property-file",
            f"step {target.name!r} is of type {target.type}, which has no property files",
            why=f"{REFUSED}: JsonGet reads the outputs of Processing steps",
            fix="refer to a Processing step",
            source="SDK 3.27: Step._validate_json_get_property_file_reference",
        )
        return
    files = [str(file.get("PropertyFileName")) for file in _files(target)]
    if reference.path not in files:
        yield place.error(
            "property-file",
            f"step {target.name!r} declares no property file {reference.path!r}",
            why=REFUSED,
            fix=suggestion(reference.path, files) if files else "declare it in PropertyFiles",
            source="SDK 3.27: Step._validate_json_get_property_file_reference; #3642",
        )


def _files(step: Step) -> list[dict]:
    files = step.document.get("PropertyFiles")
    return [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
