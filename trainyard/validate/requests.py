"""Every step against the shapes of its type, and against what the API's pages add to them."""

from collections.abc import Iterator
from typing import Any

from trainyard.language.caching import duration
from trainyard.language.document import Document, Step
from trainyard.language.expressions import is_expression
from trainyard.validate.findings import Finding
from trainyard.validate.fit import REFUSED_WHY, Fit
from trainyard.validate.location import Place, brief
from trainyard.validate.shapes import Shape
from trainyard.validate.step_types import FIELDS, PIPELINE, REFUSED, arguments_shape, step_shape

DOCUMENTED, REMEMBERED = "botocore: {} (documentation)", "API reference: {}, from memory"
STEP_CLASS = "SDK 3.27: {}"
ONE_OF = {
    "Training": (
        (
            ("AlgorithmSpecification",),
            ("TrainingImage", "AlgorithmName"),
            DOCUMENTED.format("AlgorithmSpecification"),
        ),
        (
            ("InputDataConfig", 0, "DataSource"),
            ("S3DataSource", "FileSystemDataSource", "DatasetSource"),
            REMEMBERED.format("DataSource"),
        ),
    ),
    "Processing": (
        (
            ("ProcessingInputs", 0),
            ("S3Input", "DatasetDefinition"),
            REMEMBERED.format("ProcessingInput"),
        ),
        (
            ("ProcessingOutputConfig", "Outputs", 0),
            ("S3Output", "FeatureStoreOutput"),
            REMEMBERED.format("ProcessingOutput"),
        ),
    ),
    "Tuning": (
        (
            (),
            ("TrainingJobDefinition", "TrainingJobDefinitions"),
            REMEMBERED.format("CreateHyperParameterTuningJob"),
        ),
    ),
    "Model": (((), ("PrimaryContainer", "Containers"), REMEMBERED.format("CreateModel")),),
    "RegisterModel": (
        (
            (),
            ("ModelPackageGroupName", "ModelPackageName"),
            DOCUMENTED.format("CreateModelPackageInput"),
        ),
    ),
    "EMR": (((), ("ClusterId", "ClusterConfig"), STEP_CLASS.format("EMRStep")),),
    "EMRServerless": (
        ((), ("ApplicationId", "ApplicationConfig"), STEP_CLASS.format("EMRServerlessStep")),
    ),
}
"""Step type → (where in Arguments, members of which exactly one is wanted, source); 0: in every
item. botocore's model does not say so."""
TOGETHER = {
    "Training": (
        *(
            ((), (member, "ServerlessJobConfig"), REMEMBERED.format("CreateTrainingJob"))
            for member in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
        ),
        (
            ("ResourceConfig",),
            ("InstanceType", "InstanceGroups", "InstancePreferences"),
            REMEMBERED.format("ResourceConfig"),
        ),
    ),
    "Processing": (
        (
            ("ProcessingResources", "ClusterConfig"),
            ("InstanceType", "InstancePreferences"),
            REMEMBERED.format("ProcessingClusterConfig"),
        ),
    ),
}
"""As ONE_OF, but more than one may be there. Serverless jobs made these members optional."""
UNIQUE = {
    "ChannelName": "Training input channels become folders of these names",
    "InputName": "processing inputs are told apart by their names",
    "OutputName": "processing outputs are told apart by their names",
    "Key": "a tag has one value",
    "ActionName": "lineage actions are told apart by their names",
    "ArtifactName": "lineage artifacts of one step are told apart by their names",
    "ContextName": "lineage contexts are told apart by their names",
    "VariantName": "production variants are told apart by their names",
}
"""Member of a list's items that must differ → why."""
NAMED = ("MetricDefinitions", "IntegerParameterRanges", "ContinuousParameterRanges")
"""Lists whose items are told apart by Name."""


def findings(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """What SageMaker would refuse of each step's fields and Arguments."""
    fit = Fit(document, steps)
    own = {k: v for k, v in document.document.items() if k in PIPELINE["members"]}
    yield from fit.check(own, Shape("SDK 3.27", "Pipeline", PIPELINE), Place(None, "$"))
    for step in document.steps:
        place = Place(step.name, step.path)
        if step.type not in FIELDS:  # said by the form's check
            continue
        fields = {k: v for k, v in step.document.items() if k not in ("Name", "Type")}
        yield from fit.check(fields, step_shape(step.type), place)
        shape = arguments_shape(step)
        inside = place.at("Arguments")
        if shape is not None:
            yield from fit.check(step.arguments, shape, inside)
        yield from _refused(step, inside)
        yield from _choices(step, inside)
        yield from _duplicates(step.own_arguments, inside)
        yield from _duplicates(step.document.get("OutputParameters"), place.at("OutputParameters"))
        yield from _folders(step, inside)
        yield from _cache(step, place.at("CacheConfig"))
        yield from _retries(step, place.at("RetryPolicies"))


def _refused(step: Step, place: Place) -> Iterator[Finding]:
    for name, instead in REFUSED.get(step.type, {}).items():
        if name in step.arguments:
            yield place.at(name).error(
                "not-in-a-pipeline",
                f"{name} is not accepted in a {step.type} step",
                why="CreatePipeline rejects the definition: the pipeline service sets it itself",
                fix=f"remove it; use {instead} for it" if instead != "nothing" else "remove it",
                source=f"SDK 3.27: the {step.type} step removes it",
            )
    experiment = step.arguments.get("ExperimentConfig")
    for name in (
        experiment if isinstance(experiment, dict) and not is_expression(experiment) else ()
    ):
        if name in ("ExperimentName", "TrialName"):
            yield place.at("ExperimentConfig", name).error(
                "not-in-a-pipeline",
                f"{name} is set by the pipeline, not by its steps",
                why="the pipeline's own experiment and trial are used for every step",
                fix="set PipelineExperimentConfig of the pipeline",
                source="SDK 3.27: Step._trim_experiment_config",
            )


def _choices(step: Step, place: Place) -> Iterator[Finding]:
    for several, table in ((False, ONE_OF), (True, TOGETHER)):
        for where, members, source in table.get(step.type, ()):
            for value, there in _at(step.arguments, where, place):
                yield from _choice(value, members, there, several, source)


def _choice(
    value: Any, members: tuple, place: Place, several: bool, source: str
) -> Iterator[Finding]:
    if not isinstance(value, dict) or is_expression(value):
        return
    present = [name for name in members if value.get(name) is not None]
    if not present or (len(present) > 1 and not several):
        have = f"there are {' and '.join(present)}" if present else "there is none"
        yield place.error(
            "one-of",
            f"{'one' if several else 'exactly one'} of {', '.join(members)} is wanted, {have}",
            why=REFUSED_WHY,
            fix=f"add {members[0]}" if not present else f"keep {present[0]} alone",
            source=source,
        )


def _at(value: Any, where: tuple, place: Place) -> Iterator[tuple[Any, Place]]:
    """The values at ``where``; 0 stands for every item of a list. Absent ones are left out."""
    if not where:
        yield value, place
    elif where[0] == 0:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _at(item, where[1:], place.at(index))
    elif isinstance(value, dict) and value.get(where[0]) is not None:
        yield from _at(value[where[0]], where[1:], place.at(where[0]))


def _duplicates(value: Any, place: Place) -> Iterator[Finding]:
    """Items of one list that are told apart by a name which two of them have."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _duplicates(item, place.at(key))
            if key in NAMED:
                yield from _equal_names(item, place.at(key))
    elif isinstance(value, list):
        seen: set[tuple[str, str]] = set()
        for index, item in enumerate(value):
            yield from _duplicates(item, place.at(index))
            yield from _repeated(item, seen, place.at(index))


def _repeated(item: Any, seen: set[tuple[str, str]], place: Place) -> Iterator[Finding]:
    for key, why in UNIQUE.items():
        name = item.get(key) if isinstance(item, dict) else None
        if not isinstance(name, str):
            continue
        if (key, name) in seen:
            yield place.at(key).error(
                "duplicate-item",
                f"a second item has {key} {name!r}",
                why=f"{why}; the request is refused when the step starts",
                fix="rename or remove one of them",
                source="SageMaker API reference: names in a list are unique",
            )
        seen.add((key, name))


def _equal_names(items: Any, place: Place) -> Iterator[Finding]:
    names = [i.get("Name") if isinstance(i, dict) else None for i in _items(items)]
    for index, name in enumerate(names):
        if isinstance(name, str) and name in names[:index]:
            yield place.at(index, "Name").error(
                "duplicate-item",
                f"a second item has Name {name!r}",
                why="they are told apart by their names; the request is refused",
                fix="rename or remove one of them",
                source="SageMaker API reference: names in a list are unique",
            )


def _items(value: Any) -> list:
    return value if isinstance(value, list) else []


def _folders(step: Step, place: Place) -> Iterator[Finding]:
    """A processing input's folder; of an output's the API's page says no more than absolute."""
    if step.type not in ("Processing", "QualityCheck", "ClarifyCheck"):
        return
    for value, there in _at(step.arguments, ("ProcessingInputs", 0, "S3Input", "LocalPath"), place):
        if isinstance(value, str) and not value.startswith("/opt/ml/processing/"):
            yield there.error(
                "local-path",
                f"{brief(value)} does not begin with /opt/ml/processing/",
                why=REFUSED_WHY,
                fix="/opt/ml/processing/input/<name>",
                source="botocore: ProcessingS3Input.LocalPath (documentation)",
            )


def _cache(step: Step, place: Place) -> Iterator[Finding]:
    config = step.document.get("CacheConfig")
    if not isinstance(config, dict) or "CacheConfig" not in FIELDS[step.type]:
        return
    expires = config.get("ExpireAfter")
    if expires is None and config.get("Enabled") is True:
        yield place.warning(
            "cache-without-expiry",
            "Enabled without ExpireAfter",
            why="it is not said how old a result may be that is used again",
            fix='add "ExpireAfter": "P30D"',
            source="SDK 3.27: CacheConfig; developer guide: Caching pipeline steps",
        )
    elif isinstance(expires, str):
        try:
            duration(expires)
        except ValueError as error:
            yield place.at("ExpireAfter").error(
                "cache-duration",
                str(error),
                why="the definition is refused, or the cache never hits",
                fix="write days as P30D, hours as PT12H",
                source="developer guide: Caching pipeline steps",
            )


def _retries(step: Step, place: Place) -> Iterator[Finding]:
    policies = step.document.get("RetryPolicies")
    seen: dict[str, int] = {}
    for index, policy in enumerate(policies if isinstance(policies, list) else ()):
        if not isinstance(policy, dict):  # said by the shape's check
            continue
        limits = [name for name in ("MaxAttempts", "ExpireAfterMin") if name in policy]
        if len(limits) != 1:
            yield place.at(index).error(
                "one-of",
                f"exactly one of MaxAttempts and ExpireAfterMin is wanted, there are {limits}",
                why="the policy has no end, or two",
                fix="keep MaxAttempts",
                source="SDK 3.27: RetryPolicy; AWS: Retry Policy for Pipeline Steps",
            )
        causes = policy.get("ExceptionType")
        for cause in causes if isinstance(causes, list) else ():
            if isinstance(cause, str) and seen.setdefault(cause, index) != index:
                yield place.at(index, "ExceptionType").warning(
                    "retry-twice",
                    f"{brief(cause)} has a policy already, at {place.path}[{seen[cause]}]",
                    why="only the first policy that fits an error is used",
                    fix="put each cause into one policy",
                    source="AWS: Retry Policy for Pipeline Steps",
                )
