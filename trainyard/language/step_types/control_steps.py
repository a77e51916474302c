"""Step types that the pipeline service executes itself: branches, loops, failures, lineage,
deletion.
"""

from trainyard.language.step_types.step_type import (
    ANYTHING,
    INTEGER,
    STRING,
    StepType,
    make_enum,
    make_list,
    make_map,
    make_number,
    make_structure,
)

CONDITION = StepType(
    name="Condition",
    arguments=make_structure(
        "Conditions",
        Conditions=ANYTHING,
        IfSteps=make_list(ANYTHING),
        ElseSteps=make_list(ANYTHING),
    ),
    properties={"Outcome": ANYTHING},
    nests=("IfSteps", "ElseSteps"),
    is_charged=False,
)

FOR_EACH = StepType(
    name="ForEach",
    arguments=make_structure(
        "IterableItems",
        "MaxConcurrency",
        "ForEachBody",
        IterableItems=ANYTHING,
        MaxConcurrency=make_number("integer", 1, 50),
        Selector=make_structure("Pick", "Field", Pick=make_enum("MaxBy", "MinBy"), Field=ANYTHING),
        ForEachBody=make_list(ANYTHING, min=1),
    ),
    properties={
        "Status": STRING,
        **dict.fromkeys(
            (
                "InputItemCount",
                "TotalStepCount",
                "SucceededStepCount",
                "FailedStepCount",
                "StoppedStepCount",
            ),
            INTEGER,
        ),
        "IterationOutputs": ANYTHING,
        "Selected": ANYTHING,
    },
    nests=("ForEachBody",),
)

FAIL = StepType(
    name="Fail",
    arguments=make_structure(ErrorMessage={"type": "string", "max": 3072}),
    is_charged=False,
)

_ENTITY = make_structure(Arn=STRING, Name=STRING, Type=make_enum("Action", "Artifact", "Context"))
LINEAGE = StepType(
    name="Lineage",
    arguments=make_structure(
        Actions=make_list({"shape": "CreateActionRequest"}),
        Artifacts=make_list({"shape": "CreateArtifactRequest"}),
        Contexts=make_list({"shape": "CreateContextRequest"}),
        Associations=make_list(
            make_structure(
                "Source",
                "Destination",
                Source=_ENTITY,
                Destination=_ENTITY,
                AssociationType={"shape": "AssociationEdgeType"},
            )
        ),
    ),
    properties={
        "ActionArns": make_map(STRING),
        "ArtifactArns": make_map(STRING),
        "ContextArns": make_map(STRING),
        "Associations": ANYTHING,
    },
)

CLEANUP = StepType(
    name="Cleanup",
    arguments=make_structure(
        "Resources",
        Resources=make_structure(
            "S3",
            S3=make_list(
                make_structure("StepName", StepName=STRING, S3Uris=make_list(STRING, min=1)), min=1
            ),
        ),
    ),
)
