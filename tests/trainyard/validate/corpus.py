"""The mistakes that are seeded in the definitions, by the rule that says so."""

from tests.trainyard.validate.faults import (
    add,
    around,
    both,
    drop,
    get,
    make_warnings,
    place_at,
    place_within,
    put,
    rename,
    seed,
)

URI = "ProcessingInputs/0/S3Input/S3Uri"
SECOND, THIRD = f"processing_chain/1/{URI}", f"processing_chain/2/{URI}"
OUT = "Steps.First.ProcessingOutputConfig.Outputs"
RETRY = "processing_chain/Steps/0/RetryPolicies/0"
CLUSTER = "processing/0/ProcessingResources/ClusterConfig"
CONTAINER_ARGUMENTS = "processing/0/AppSpecification/ContainerArguments"
JSON_GET = "gate/1/Conditions/0/LeftValue/Std:JsonGet"
SHORT = "nested_conditions/0/IfSteps/0/Arguments/ElseSteps/0"
MODEL_DATA = "model/1/PrimaryContainer/ModelDataUrl"
DATA_SOURCES = "AdditionalModelDataSources"
LONG = "x" * 5000
S3 = {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/k"}}}


def make_reading_step(reference: str) -> dict:
    """One more step, which is given what ``reference`` says."""
    return {"Name": "N", "Type": "Lambda", "FunctionArn": "x", "Arguments": {"p": get(reference)}}


FAULTS = (
    *seed(
        "version",
        put("training/Version", "2020-12-02"),
        place_within(drop("training/Version"), "Version"),
    ),
    *seed(
        "unknown-member",
        rename("training/Steps", "Step"),
        put("training/Tags", []),
        rename("experiment/PipelineExperimentConfig/TrialName", "Trial"),
        rename("training/Parameters/1/DefaultValue", "Default"),
        rename("processing_chain/Steps/2/DependsOn", "DependOn"),
        rename("training/Steps/0/CacheConfig/ExpireAfter", "ExpiresAfter"),
        put("gate/1/ElseSteps/0/CacheConfig", {"Enabled": True}),
        put("lambdas/Steps/0/RetryPolicies", []),
        put("training/Steps/0/PropertyFiles", []),
        rename("training/0/StoppingCondition", "StopingCondition"),
        rename("training/0/InputDataConfig/0/DataSource/S3DataSource/S3Uri", "S3uri"),
        put("emr_cluster/0/ClusterConfig/Name", "mine"),
        place_within(put("emr_serverless/0/JobConfig/jobDriver", {"spark": {}}), "spark"),
        rename("gate/1/ElseSteps/0/Arguments/ErrorMessage", "Message"),
        rename("triggers/Steps/1/DependsOn/0/Trigger", "On"),
        rename("gate/Steps/0/PropertyFiles/0/FilePath", "Path"),
        rename(f"{JSON_GET}/Path", "JsonPath"),
        rename("gate/1/Conditions/0/RightValue", "Right"),
        place_within(
            put("conditions/1/Conditions/5", {"Type": "Not", "Expression": {}}), "Expression"
        ),
    ),
    *seed(
        "form",
        put("training/Steps", []),
        put("training/Steps", {}),
        add("training/Steps", "Train"),
        put("training/Parameters", {}),
        put("training/Metadata", []),
        put("training/Steps/0/Arguments", []),
    ),
    *seed(
        "name",
        put("training/Steps/0/Name", "My Train"),
        put("training/Steps/0/Name", "a" * 65),
        put("training/Steps/0/Name", ""),
        place_within(drop("training/Steps/0/Name"), "Name"),
        place_within(add("training/Parameters", {"Name": "a.b", "Type": "String"}), "Name"),
        place_within(drop("training/Parameters/0/Name"), "Name"),
    ),
    *seed(
        "duplicate-name",
        put("processing_chain/Steps/1/Name", "First"),
        put("gate/1/IfSteps/0/Name", "Process"),
        place_within(add("training/Parameters", {"Name": "Kind", "Type": "String"}), "Name"),
        place_within(
            add("gate/Steps/0/PropertyFiles", {"PropertyFileName": "Report"}), "PropertyFileName"
        ),
    ),
    *seed(
        "step-type",
        put("training/Steps/0/Type", "Trainig"),
        place_within(drop("training/Steps/0/Type"), "Type"),
    ),
    *seed(
        "missing-member",
        drop("training/Steps/0/Arguments"),
        drop(f"{RETRY}/ExceptionType"),
        drop("lambdas/Steps/0/FunctionArn"),
        drop("callback/Steps/0/SqsQueueUrl"),
        drop("training/0/RoleArn"),
        around(put("training/0/RoleArn", None)),
        drop("training/0/InputDataConfig/1/DataSource/S3DataSource/S3DataType"),
        drop("emr/0/StepConfig/HadoopJarStep/Jar"),
        drop("lineage/0/Artifacts/0/Source"),
        drop("gate/1/Conditions/0/RightValue"),
    ),
    *seed("parameter-type", put("training/Parameters/0/Type", "Int")),
    *seed(
        "parameter-default",
        put("training/Parameters/1/DefaultValue", "100"),
        put("training/Parameters/1/DefaultValue", 1.5),
        put("data_quality/Parameters/0/DefaultValue", "false"),
    ),
    *seed(
        "parameter-enum",
        put("training/Parameters/0/DefaultValue", "ml.g5.4xlarge"),
        put("training/Parameters/0/EnumValues", "ml.g5.xlarge"),
        add("training/Parameters/0/EnumValues", 3),
    ),
    *seed(
        "type",
        put("training/Steps/0/CacheConfig/Enabled", "true"),
        put("data_quality/Steps/0/FailOnViolation", "True"),
        put("training/0/ResourceConfig/InstanceCount", "1"),
        put("training/0/ResourceConfig/InstanceCount", 1.5),
        put("training/0/ResourceConfig/InstanceCount", True),
        put("training/0/HyperParameters/steps", 100),
        put("training/0/Environment/RUN", {"Gett": "Execution.PipelineName"}),
        put("training/0/RoleArn", ["arn:aws:iam::111122223333:role/x"]),
        put("training/0/InputDataConfig", {}),
        put("job/0/JobConfigDocument", {}),
        put("gate/1/ElseSteps/0/Arguments/ErrorMessage", 3),
        put("processing_chain/Steps/2/DependsOn", "Second"),
    ),
    *seed("cache-duration", put("training/Steps/0/CacheConfig/ExpireAfter", "30 days")),
    *make_warnings(
        "cache-duration",
        put("training/Steps/0/CacheConfig/ExpireAfter", "30d"),
        put("training/Steps/0/CacheConfig/ExpireAfter", "PT0S"),
    ),
    *make_warnings("cache-without-expiry", drop("training/Steps/0/CacheConfig/ExpireAfter")),
    *seed(
        "enum",
        place_within(put(f"{RETRY}/ExceptionType", ["Step.THROTTLED"]), 0),
        place_within(put(f"{RETRY}/ExceptionType", ["SageMaker.JOB_CAPACITY_ERROR"]), 0),
        put("lambdas/Steps/0/OutputParameters/0/OutputType", "Int"),
        put("data_quality/Steps/0/CheckType", "DATA_BIAS"),
        put(f"{CLUSTER}/InstanceType", "ml.m5.xlrge"),
        place_at(
            "0/ResourceConfig/InstanceType",
            put(
                "training/Parameters/0",
                {"Name": "Kind", "Type": "String", "DefaultValue": "ml.g55"},
            ),
        ),
        place_at(
            "0/ResourceConfig/InstanceType", add("training/Parameters/0/EnumValues", "ml.nothing")
        ),
        put("training/0/AlgorithmSpecification/TrainingInputMode", "Fast"),
        place_at("1/ModelApprovalStatus", put("registration/Parameters/0/DefaultValue", "Pending")),
        put("lineage/0/Associations/0/AssociationType", "Made"),
        put("for_each/0/Selector/Pick", "Max"),
    ),
    *seed(
        "range",
        put(f"{RETRY}/MaxAttempts", 21),
        put(f"{RETRY}/IntervalSeconds", 0),
        put(f"{CLUSTER}/VolumeSizeInGB", 0),
        put(f"{CLUSTER}/VolumeSizeInGB", 20000),
        put("for_each/0/MaxConcurrency", 51),
    ),
    *make_warnings("one-of", drop(f"{RETRY}/MaxAttempts")),
    *seed(
        "one-of",
        around(put(f"{RETRY}/ExpireAfterMin", 5)),
        around(put("training/0/AlgorithmSpecification/AlgorithmName", "mine")),
        drop("training/0/AlgorithmSpecification/TrainingImage"),
        drop("training/0/StoppingCondition"),
        drop("training/0/ResourceConfig"),
        drop(f"{CLUSTER}/InstanceType"),
        put("training/0/InputDataConfig/0/DataSource", {}),
        drop("processing/0/ProcessingInputs/0/S3Input"),
        around(put("registration/1/ModelPackageName", "x")),
        drop("model/1/PrimaryContainer"),
        around(put("tuning/0/TrainingJobDefinitions", [])),
        around(put("automl_v2/0/AutoMLProblemTypeConfig/TextClassificationJobConfig", {})),
        around(put("emr/0/ClusterConfig", {"Instances": {}})),
    ),
    *make_warnings(
        "retry-twice",
        put("processing_chain/Steps/0/RetryPolicies/1/ExceptionType", ["Step.THROTTLING"]),
    ),
    *seed(
        "length",
        put("training/Steps/0/Description", LONG),
        put("training/0/InputDataConfig", []),
        put("training/0/InputDataConfig", [{"ChannelName": f"c{n}", **S3} for n in range(21)]),
        put("training/0/HyperParameters", {f"h{n}": "1" for n in range(101)}),
        put("training/0/HyperParameters/name", LONG),
        place_within(put(CONTAINER_ARGUMENTS, ["x" * 257]), 0),
        put("for_each/0/ForEachBody", []),
    ),
    *seed(
        "pattern",
        put("training/0/RoleArn", "my-role"),
        put("training/0/OutputDataConfig/S3OutputPath", "/tmp/models"),
        place_at(f"0/{URI}", put("processing/Parameters/0/DefaultValue", "bucket/raw")),
        put(THIRD, {"Std:Join": {"On": "/", "Values": ["s3:", "bucket"]}}),
        put("processing/0/Environment/my-var", "1"),
        put("registration/1/CustomerMetadataProperties/n", "a{b}"),
        put(
            THIRD,
            {"Std:Join": {"On": "/", "Values": ["s3:", get("Execution.PipelineExecutionId")]}},
        ),
    ),
    *seed(
        "number-in-string",
        put("training/0/HyperParameters/steps", get("Parameters.Steps")),
        put("data_quality/1/Environment/MODE", get("Parameters.Skip")),
        put(f"{CONTAINER_ARGUMENTS}/1", get("Parameters.Count")),
        put("lambdas/1/Environment/MODE", get("Steps.Function.OutputParameters['count']")),
    ),
    *seed(
        "expression-type",
        put("training/0/ResourceConfig/InstanceCount", get("Parameters.Kind")),
        put("training/0/ResourceConfig/InstanceCount", {"Std:Join": {"On": "", "Values": ["2"]}}),
        place_within(
            put(
                "processing/0/NetworkConfig",
                {"VpcConfig": {"Subnets": get("Parameters.Uri"), "SecurityGroupIds": ["sg-1"]}},
            ),
            "VpcConfig",
            "Subnets",
        ),
        put("registration/1/CustomerMetadataProperties/job", get("Steps.Train.ModelArtifacts")),
    ),
    *seed(
        "duplicate-item",
        put("training/0/InputDataConfig/1/ChannelName", "train"),
        place_within(
            put("training/0/Tags", [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]),
            1,
            "Key",
        ),
        place_within(add("processing/0/ProcessingInputs", {"InputName": "data"}), "InputName"),
    ),
    *seed(
        "not-in-a-pipeline",
        place_within(put("training/0/ExperimentConfig", {"ExperimentName": "e"}), "ExperimentName"),
        put(f"model/1/PrimaryContainer/{DATA_SOURCES}", []),
        place_within(
            put("model/1/Containers", [{"Image": "a"}, {"Image": "a", DATA_SOURCES: []}]),
            1,
            DATA_SOURCES,
        ),
        put("automl/0/ModelDeployConfig", {}),
        put("registration/1/CertifyForMarketplace", True),
    ),
    *seed(
        "property",
        put(SECOND, get(f"{OUT}.out.S3Output.S3Uri")),
        put("for_each/1/first", get("Steps.Loop.IterationOutputs[0].Score.OutputParameters.score")),
        both(
            put("cleanup/0/HyperParameters", {"epochs": "3"}),
            put("cleanup/1/Environment/MODE", get("Steps.Train.HyperParameters.epochs")),
        ),
        put(
            "automl/1/PrimaryContainer/Image",
            get("Steps.Auto.BestCandidate.InferenceContainers[40].Image"),
        ),
        put(MODEL_DATA, get("Steps.Train.ModelArtifact.S3ModelArtifacts")),
        put(MODEL_DATA, get("Steps.Train.ModelArtifacts.S3ModelArtifact")),
        put(SECOND, get("Steps.First.ModelArtifacts.S3ModelArtifacts")),
        put(SECOND, get(f"{OUT}['ot'].S3Output.S3Uri")),
        put(SECOND, get(f"{OUT}[1].S3Output.S3Uri")),
        put(SECOND, get("Steps.First.RoleArn.Name")),
        put(f"lambdas/1/{URI}", get("Steps.Function.OutputParameters['url']")),
        put(f"lambdas/1/{URI}", get("Steps.Function.Outputs.uri")),
        put(f"data_quality/1/{URI}", get("Steps.Quality.CalculatedBaseline")),
        put("gate/1/IfSteps/0/Arguments/ModelPackageGroupName", get("Steps.Bad.ErrorMessage")),
        place_within(
            add("callback/Steps", make_reading_step("Steps.Answered.Result")), "Arguments", "p"
        ),
        put("cleanup/1/Environment/MODE", get("Steps.Clean.Done")),
        put("for_each/1/failed", get("Steps.Loop.Failed")),
        put(
            "for_each/1/first", get("Steps.Loop.IterationOutputs[0].Scor.OutputParameters['score']")
        ),
        put("for_each/1/first", get("Steps.Loop.IterationOutputs.Score")),
    ),
    *seed(
        "loop-items",
        place_at(
            "0/IterableItems",
            put("for_each/Parameters/0", {"Name": "Items", "Type": "Integer", "DefaultValue": 3}),
        ),
        place_at("0/IterableItems", put("for_each/Parameters/0/DefaultValue", "a,b")),
        put("for_each/0/IterableItems", 3),
        put("for_each/0/IterableItems", ["x"] * 101),
    ),
    *seed(
        "expression",
        put("for_each/0/ForEachBody/0/Arguments/item", get("ForEach.CurentItem")),
        put("training/0/Environment/RUN", get("Parameter.Kind")),
        put("training/0/Environment/RUN", {"Get": 3}),
        put(SECOND, get("Steps.First")),
        put("training/0/Environment/RUN", get("Execution.PipelineExecutionID")),
        put(SECOND, get(f"{OUT}['out.S3Output.S3Uri")),
        put(f"{JSON_GET}/Path", get("Parameters.Least")),
        drop(f"{JSON_GET}/PropertyFile"),
        put(f"{JSON_GET}/PropertyFile", "Report"),
        drop(f"{THIRD}/Std:Join/Values"),
        put(f"{THIRD}/Std:Join/On", 3),
    ),
    *seed("inside-a-loop", put("for_each/1/first", get("Steps.Score.OutputParameters['score']"))),
    *seed(
        "loop-body",
        place_within(
            add("for_each/0/ForEachBody", {"Name": "N", "Type": "Fail", "Arguments": {}}), "Type"
        ),
    ),
    *seed(
        "loop-item",
        put("for_each/0/Selector/Field", get("Parameters.Items")),
        put("for_each/1/first", get("ForEach.CurrentItem")),
        put("for_each/0/Selector/Field", get("IterationOutput.Scoer.OutputParameters['score']")),
    ),
    *seed(
        "cleanup-order",
        place_at("2/Resources/S3/1/StepName", put("cleanup/Steps/2/DependsOn", ["Train"])),
    ),
    *seed(
        "folder-outside-processing",
        put("processing/0/ProcessingInputs/0/S3Input/LocalPath", "/opt/ml/input"),
    ),
    *seed(
        "unknown-parameter",
        put("training/0/ResourceConfig/InstanceType", get("Parameters.Kin")),
        place_at("1/Conditions/0/RightValue", put("gate/Parameters", [])),
        put(f"{CONTAINER_ARGUMENTS}/1/Std:Join/Values/0", get("Parameters.Cuont")),
        put("experiment/PipelineExperimentConfig/ExperimentName", get("Parameters.Experimentt")),
    ),
    *make_warnings(
        "unused-parameter", add("training/Parameters", {"Name": "Idle", "Type": "String"})
    ),
    *seed(
        "unknown-step",
        put(SECOND, get("Steps.Frist.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri")),
        place_within(put("processing_chain/Steps/2/DependsOn", ["Secnod"]), 0),
        put("cleanup/2/Resources/S3/0/StepName", "Trian"),
    ),
    *seed(
        "depends-on",
        place_within(put("processing_chain/Steps/2/DependsOn", [2]), 0),
        put("triggers/Steps/1/DependsOn/0/Trigger", "Fail"),
    ),
    *seed("after-fail", place_within(put("gate/1/IfSteps/0/DependsOn", ["Bad"]), 0)),
    *seed(
        "cycle",
        around(put("processing_chain/Steps/0/DependsOn", ["First"])),
        place_at("Steps/0", put(f"processing_chain/0/{URI}", get(f"{OUT}['out'].S3Output.S3Uri"))),
        around(put("processing_chain/Steps/0/DependsOn", ["Second"])),
        around(put("processing_chain/Steps/0/DependsOn", ["Third"])),
        place_at(
            "Steps/1", put("gate/1/Conditions/0/LeftValue", get("Steps.Register.ModelPackageArn"))
        ),
    ),
    *seed(
        "other-branch",
        put(f"{SHORT}/Arguments/HyperParameters/a", get("Steps.Long.TrainingJobName")),
        place_within(put(f"{SHORT}/DependsOn", ["Long"]), 0),
    ),
    *make_warnings(
        "may-not-run",
        place_within(
            add("gate/Steps", make_reading_step("Steps.Register.ModelPackageArn")), "Arguments", "p"
        ),
    ),
    *make_warnings(
        "nested-condition",
        place_at("0/IfSteps/0", put("nested_conditions/Steps/0/DisplayName", "as it is")),
    ),
    *make_warnings(
        "waits-for-condition",
        place_within(
            add("nested_conditions/Steps", {"Name": "N", "Type": "Fail", "DependsOn": ["Outer"]}),
            "DependsOn",
            0,
        ),
    ),
    *seed(
        "property-file",
        put(f"{JSON_GET}/PropertyFile", get("Steps.Process.PropertyFiles.Reprot")),
        place_at(
            "1/Conditions/0/LeftValue/Std:JsonGet/PropertyFile", drop("gate/Steps/0/PropertyFiles")
        ),
        place_at(
            "1/Conditions/3/LeftValue/Std:JsonGet/PropertyFile",
            put("conditions/Steps/0/Type", "Training"),
        ),
    ),
    *seed(
        "property-file-output",
        put("gate/Steps/0/PropertyFiles/0/OutputName", "ot"),
        place_at(
            "Steps/0/PropertyFiles/0/OutputName",
            put("gate/0/ProcessingOutputConfig/Outputs/0/OutputName", "o"),
        ),
    ),
    *seed(
        "property-file-path", put("gate/Steps/0/PropertyFiles/0/FilePath", "/opt/ml/report.json")
    ),
    *seed("json-path", put(f"{JSON_GET}/Path", "$.metrics"), put(f"{JSON_GET}/Path", "")),
    *seed("join-values", *(put(f"{THIRD}/Std:Join/Values/1", odd) for odd in (["part"], {"a": 1}))),
    *seed("lineage-entity", around(put("lineage/0/Associations/0/Source/Name", "dta"))),
    *seed(
        "condition",
        around(put("gate/1/Conditions/0/Type", "GreaterThanOrEqual")),
        drop("gate/1/Conditions/0/Type"),
        put("gate/1/Conditions", []),
        put("conditions/1/Conditions/4/Values", "a"),
        put("conditions/1/Conditions/6/Conditions", []),
        around(put("conditions/1/Conditions/2/RightValue", None)),
        around(put("conditions/1/Conditions/2/RightValue", [10])),
    ),
    *seed(
        "condition-types",
        around(put("conditions/1/Conditions/2/RightValue", "10")),
        around(put("conditions/1/Conditions/0/RightValue", "true")),
        place_at(
            "1/Conditions/1",
            put("conditions/Parameters/3", {"Name": "Rate", "Type": "String", "DefaultValue": "1"}),
        ),
        around(put("conditions/1/Conditions/7/RightValue", 1)),
        around(put("conditions/1/Conditions/0/Type", "GreaterThan")),
        place_within(put("conditions/1/Conditions/4/Values", ["a", 1]), 1),
        around(put("conditions/1/Conditions/6/Conditions/1/RightValue", "3")),
        around(put("conditions/1/Conditions/5/Condition/RightValue", 3)),
        around(put("callback/1/Conditions/0/RightValue", "true")),
    ),
    *make_warnings(
        "condition-types",
        around(put("conditions/1/Conditions/7/Type", "LessThan")),
        around(put("conditions/1/Conditions/3/RightValue", "0.5")),
    ),
    *make_warnings("empty-condition", around(put("callback/1/IfSteps", []))),
    *seed(
        "quota",
        put("training/Parameters", [{"Name": f"P{n}", "Type": "String"} for n in range(201)]),
        around(put("training/Metadata", {"x": "x" * 1_048_576})),
    ),
)
