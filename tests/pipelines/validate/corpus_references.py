"""Faults in references, in the order of the steps, in conditions and in quotas."""

from tests.pipelines.validate.faults import Fault, add, both, drop, get, put, rename

URI = "Arguments/ProcessingInputs/0/S3Input/S3Uri"
JURI = "Arguments.ProcessingInputs[0].S3Input.S3Uri"
OUT = "Steps.First.ProcessingOutputConfig.Outputs"
LEFT = "Steps/1/Arguments/Conditions/0/LeftValue"
JLEFT = "$.Steps[1].Arguments.Conditions[0].LeftValue"
C, JC = "Steps/1/Arguments/Conditions", "$.Steps[1].Arguments.Conditions"
IF, JIF = "Steps/1/Arguments/IfSteps/0", "$.Steps[1].Arguments.IfSteps[0]"
ELSE = "Steps/1/Arguments/ElseSteps/0"
EQUALS = {"Type": "Equals", "LeftValue": 1, "RightValue": 1}

REFERENCES = [
    Fault("parameter misspelt", "training", put("Steps/0/Arguments/ResourceConfig/InstanceType", get("Parameters.Kin")), "unknown-parameter", "$.Steps[0].Arguments.ResourceConfig.InstanceType"),
    Fault("parameter removed", "gate", put("Parameters", []), "unknown-parameter", "$.Steps[1].Arguments.Conditions[0].RightValue"),
    Fault("parameter in a join misspelt", "processing", put("Steps/0/Arguments/AppSpecification/ContainerArguments/1/Std:Join/Values/0", get("Parameters.Cuont")), "unknown-parameter", ""),
    Fault("parameter of the experiment", "experiment", put("PipelineExperimentConfig/ExperimentName", get("Parameters.Experimentt")), "unknown-parameter", "$.PipelineExperimentConfig.ExperimentName"),
    Fault("parameter unused", "training", add("Parameters", {"Name": "Idle", "Type": "String"}), "unused-parameter", "$.Parameters[2]", "warning"),
    Fault("step misspelt", "processing_chain", put(f"Steps/1/{URI}", get("Steps.Frist.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri")), "unknown-step", f"$.Steps[1].{JURI}"),
    Fault("kind misspelt", "training", put("Steps/0/Arguments/Environment/RUN", get("Parameter.Kind")), "expression", "$.Steps[0].Arguments.Environment.RUN"),
    Fault("kind in lower case", "training", put("Steps/0/Arguments/Environment/RUN", get("steps.Train.RoleArn")), "expression", "$.Steps[0].Arguments.Environment.RUN"),
    Fault("Get of a number", "training", put("Steps/0/Arguments/Environment/RUN", {"Get": 3}), "expression", "$.Steps[0].Arguments.Environment.RUN"),
    Fault("a step without a property", "processing_chain", put(f"Steps/1/{URI}", get("Steps.First")), "expression", f"$.Steps[1].{JURI}"),
    Fault("execution variable misspelt", "training", put("Steps/0/Arguments/Environment/RUN", get("Execution.PipelineExecutionID")), "expression", "$.Steps[0].Arguments.Environment.RUN"),
    Fault("property misspelt", "model", put("Steps/1/Arguments/PrimaryContainer/ModelDataUrl", get("Steps.Train.ModelArtifact.S3ModelArtifacts")), "property", "$.Steps[1].Arguments.PrimaryContainer.ModelDataUrl"),
    Fault("deep property misspelt", "model", put("Steps/1/Arguments/PrimaryContainer/ModelDataUrl", get("Steps.Train.ModelArtifacts.S3ModelArtifact")), "property", "$.Steps[1].Arguments.PrimaryContainer.ModelDataUrl"),
    Fault("property of another type", "processing_chain", put(f"Steps/1/{URI}", get("Steps.First.ModelArtifacts.S3ModelArtifacts")), "property", f"$.Steps[1].{JURI}"),
    Fault("output misspelt", "processing_chain", put(f"Steps/1/{URI}", get(f"{OUT}['ot'].S3Output.S3Uri")), "property", f"$.Steps[1].{JURI}"),
    Fault("output's index", "processing_chain", put(f"Steps/1/{URI}", get(f"{OUT}[1].S3Output.S3Uri")), "property", f"$.Steps[1].{JURI}"),
    Fault("bracket open", "processing_chain", put(f"Steps/1/{URI}", get(f"{OUT}['out.S3Output.S3Uri")), "expression", f"$.Steps[1].{JURI}"),
    Fault("path into text", "processing_chain", put(f"Steps/1/{URI}", get("Steps.First.RoleArn.Name")), "property", f"$.Steps[1].{JURI}"),
    Fault("Lambda output misspelt", "lambdas", put(f"Steps/1/{URI}", get("Steps.Function.OutputParameters['url']")), "property", f"$.Steps[1].{JURI}"),
    Fault("Lambda's answer", "lambdas", put(f"Steps/1/{URI}", get("Steps.Function.Outputs.uri")), "property", f"$.Steps[1].{JURI}"),
    Fault("property of a check", "data_quality", put(f"Steps/1/{URI}", get("Steps.Quality.CalculatedBaseline")), "property", f"$.Steps[1].{JURI}"),
    Fault("property of a Fail step", "gate", put(f"{IF}/Arguments/ModelPackageGroupName", get("Steps.Bad.ErrorMessage")), "property", f"{JIF}.Arguments.ModelPackageGroupName"),
    Fault("property of a condition", "callback", add("Steps", {"Name": "N", "Type": "Lambda", "Arguments": {"a": get("Steps.Answered.Result")}, "FunctionArn": "x"}), "property", "$.Steps[2].Arguments.a"),
    Fault("property of a cleanup", "cleanup", put("Steps/1/Arguments/Environment/MODE", get("Steps.Clean.Done")), "property", "$.Steps[1].Arguments.Environment.MODE"),
    Fault("property of a loop", "for_each", put("Steps/1/Arguments/failed", get("Steps.Loop.Failed")), "property", "$.Steps[1].Arguments.failed"),
    Fault("loop's body misspelt", "for_each", put("Steps/1/Arguments/first", get("Steps.Loop.IterationOutputs[0].Scor.OutputParameters['score']")), "property", "$.Steps[1].Arguments.first"),
    Fault("loop without index", "for_each", put("Steps/1/Arguments/first", get("Steps.Loop.IterationOutputs.Score")), "property", "$.Steps[1].Arguments.first"),
    Fault("item outside a loop", "for_each", put("Steps/1/Arguments/first", get("ForEach.CurrentItem")), "loop-item", "$.Steps[1].Arguments.first"),
    Fault("selector's step misspelt", "for_each", put("Steps/0/Arguments/Selector/Field", get("IterationOutput.Scoer.OutputParameters['score']")), "loop-item", "$.Steps[0].Arguments.Selector.Field"),
    Fault("depends on nothing", "processing_chain", put("Steps/2/DependsOn", ["Secnod"]), "unknown-step", "$.Steps[2].DependsOn[0]"),
    Fault("depends on text", "processing_chain", put("Steps/2/DependsOn", "Second"), "type", "$.Steps[2].DependsOn"),
    Fault("depends on a number", "processing_chain", put("Steps/2/DependsOn", [2]), "depends-on", "$.Steps[2].DependsOn[0]"),
    Fault("trigger misspelt", "triggers", put("Steps/1/DependsOn/0/Trigger", "Fail"), "depends-on", "$.Steps[1].DependsOn[0].Trigger"),
    Fault("trigger's member misspelt", "triggers", rename("Steps/1/DependsOn/0/Trigger", "On"), "unknown-member", "$.Steps[1].DependsOn[0].On"),
    Fault("depends on a Fail step", "gate", put(f"{IF}/DependsOn", ["Bad"]), "after-fail", f"{JIF}.DependsOn[0]"),
    Fault("depends on itself", "processing_chain", put("Steps/0/DependsOn", ["First"]), "cycle", "$.Steps[0]"),
    Fault("refers to itself", "processing_chain", put(f"Steps/0/{URI}", get(f"{OUT}['out'].S3Output.S3Uri")), "cycle", "$.Steps[0]"),
    Fault("two steps wait for each other", "processing_chain", put("Steps/0/DependsOn", ["Second"]), "cycle", ""),
    Fault("three steps in a circle", "processing_chain", put("Steps/0/DependsOn", ["Third"]), "cycle", ""),
    Fault("a condition waits for its branch", "gate", put(LEFT, get("Steps.Register.ModelPackageArn")), "cycle", ""),
    Fault("the other branch", "nested_conditions", put("Steps/0/Arguments/IfSteps/0/Arguments/ElseSteps/0/Arguments/HyperParameters", {"a": get("Steps.Long.TrainingJobName")}), "other-branch", "$.Steps[0].Arguments.IfSteps[0].Arguments.ElseSteps[0].Arguments.HyperParameters.a"),
    Fault("depends on the other branch", "nested_conditions", put("Steps/0/Arguments/IfSteps/0/Arguments/ElseSteps/0/DependsOn", ["Long"]), "other-branch", ""),
    Fault("into a branch from outside", "gate", put("Steps/0/DependsOn", []) and add("Steps", {"Name": "N", "Type": "Lambda", "FunctionArn": "x", "Arguments": {"p": get("Steps.Register.ModelPackageArn")}}), "may-not-run", "$.Steps[2].Arguments.p", "warning"),
    Fault("property file misspelt", "gate", put(f"{LEFT}/Std:JsonGet/PropertyFile", get("Steps.Process.PropertyFiles.Reprot")), "property-file", f"{JLEFT}['Std:JsonGet'].PropertyFile"),
    Fault("property file not declared", "gate", drop("Steps/0/PropertyFiles"), "property-file", ""),
    Fault("property file of a training", "conditions", put("Steps/0/Type", "Training"), "property-file", ""),
    Fault("property file's output", "gate", put("Steps/0/PropertyFiles/0/OutputName", "ot"), "property-file-output", "$.Steps[0].PropertyFiles[0].OutputName"),
    Fault("output renamed", "gate", put("Steps/0/Arguments/ProcessingOutputConfig/Outputs/0/OutputName", "o"), "property-file-output", "$.Steps[0].PropertyFiles[0].OutputName"),
    Fault("property files equal", "gate", add("Steps/0/PropertyFiles", {"PropertyFileName": "Report", "OutputName": "out", "FilePath": "b.json"}), "duplicate-name", "$.Steps[0].PropertyFiles[1].PropertyFileName"),
    Fault("property file's path absolute", "gate", put("Steps/0/PropertyFiles/0/FilePath", "/opt/ml/report.json"), "property-file-path", "$.Steps[0].PropertyFiles[0].FilePath"),
    Fault("property file's member misspelt", "gate", rename("Steps/0/PropertyFiles/0/FilePath", "Path"), "unknown-member", "$.Steps[0].PropertyFiles[0].Path"),
    Fault("JsonGet path an expression", "gate", put(f"{LEFT}/Std:JsonGet/Path", get("Parameters.Least")), "expression", f"{JLEFT}['Std:JsonGet'].Path"),
    Fault("JsonGet path with $", "gate", put(f"{LEFT}/Std:JsonGet/Path", "$.metrics"), "json-path", f"{JLEFT}['Std:JsonGet'].Path"),
    Fault("JsonGet path empty", "gate", put(f"{LEFT}/Std:JsonGet/Path", ""), "json-path", f"{JLEFT}['Std:JsonGet'].Path"),
    Fault("JsonGet without file", "gate", drop(f"{LEFT}/Std:JsonGet/PropertyFile"), "expression", f"{JLEFT}['Std:JsonGet']"),
    Fault("JsonGet of text", "gate", put(f"{LEFT}/Std:JsonGet/PropertyFile", "Report"), "expression", f"{JLEFT}['Std:JsonGet'].PropertyFile"),
    Fault("JsonGet's member misspelt", "gate", rename(f"{LEFT}/Std:JsonGet/Path", "JsonPath"), "unknown-member", f"{JLEFT}['Std:JsonGet'].JsonPath"),
    Fault("join of a list", "processing_chain", put(f"Steps/2/{URI}/Std:Join/Values/1", ["part"]), "join-values", f"$.Steps[2].{JURI}['Std:Join'].Values[1]"),
    Fault("join of an object", "processing_chain", put(f"Steps/2/{URI}/Std:Join/Values/1", {"a": 1}), "join-values", f"$.Steps[2].{JURI}['Std:Join'].Values[1]"),
    Fault("join without values", "processing_chain", drop(f"Steps/2/{URI}/Std:Join/Values"), "expression", f"$.Steps[2].{JURI}['Std:Join']"),
    Fault("join on a number", "processing_chain", put(f"Steps/2/{URI}/Std:Join/On", 3), "expression", f"$.Steps[2].{JURI}['Std:Join'].On"),
    Fault("cleanup of nothing", "cleanup", put("Steps/2/Arguments/Resources/S3/0/StepName", "Trian"), "unknown-step", "$.Steps[2].Arguments.Resources.S3[0].StepName"),
    Fault("association of nothing", "lineage", put("Steps/0/Arguments/Associations/0/Source/Name", "dta"), "lineage-entity", "$.Steps[0].Arguments.Associations[0].Source"),
]  # fmt: skip

CONDITIONS = [
    Fault("operator misspelt", "gate", put(f"{C}/0/Type", "GreaterThanOrEqual"), "condition", f"{JC}[0]"),
    Fault("no operator", "gate", drop(f"{C}/0/Type"), "condition", f"{JC}[0]"),
    Fault("no conditions", "gate", put(C, []), "condition", JC),
    Fault("side missing", "gate", drop(f"{C}/0/RightValue"), "missing-member", f"{JC}[0]"),
    Fault("side misspelt", "gate", rename(f"{C}/0/RightValue", "Right"), "unknown-member", f"{JC}[0].Right"),
    Fault("Not of an Expression", "conditions", lambda d: d["Steps"][1]["Arguments"]["Conditions"].__setitem__(5, {"Type": "Not", "Expression": EQUALS}), "unknown-member", f"{JC}[5].Expression"),
    Fault("a number with text", "conditions", put(f"{C}/2/RightValue", "10"), "condition-types", f"{JC}[2]"),
    Fault("a boolean with text", "conditions", put(f"{C}/0/RightValue", "true"), "condition-types", f"{JC}[0]"),
    Fault("a parameter's type changed", "conditions", both(put("Parameters/3/Type", "String"), put("Parameters/3/DefaultValue", "0.5")), "condition-types", f"{JC}[1]"),
    Fault("a property with a number", "conditions", put(f"{C}/7/RightValue", 1), "condition-types", f"{JC}[7]"),
    Fault("order of booleans", "conditions", put(f"{C}/0/Type", "GreaterThan"), "condition-types", f"{JC}[0]"),
    Fault("order of texts", "conditions", put(f"{C}/7/Type", "LessThan"), "condition-types", f"{JC}[7]", "warning"),
    Fault("order with text", "conditions", put(f"{C}/3/RightValue", "0.5"), "condition-types", f"{JC}[3]", "warning"),
    Fault("In with no list", "conditions", put(f"{C}/4/Values", "a"), "condition", f"{JC}[4].Values"),
    Fault("In of another type", "conditions", put(f"{C}/4/Values", ["a", 1]), "condition-types", f"{JC}[4].Values[1]"),
    Fault("Or of nothing", "conditions", put(f"{C}/6/Conditions", []), "condition", f"{JC}[6].Conditions"),
    Fault("wrong inside Or", "conditions", put(f"{C}/6/Conditions/1/RightValue", "3"), "condition-types", f"{JC}[6].Conditions[1]"),
    Fault("wrong inside Not", "conditions", put(f"{C}/5/Condition/RightValue", 3), "condition-types", f"{JC}[5].Condition"),
    Fault("side null", "conditions", put(f"{C}/2/RightValue", None), "condition", f"{JC}[2]"),
    Fault("side a list", "conditions", put(f"{C}/2/RightValue", [10]), "condition", f"{JC}[2]"),
    Fault("Lambda output with text", "callback", put(f"{C}/0/RightValue", "true"), "condition-types", f"{JC}[0]"),
    Fault("branches empty", "callback", put("Steps/1/Arguments/IfSteps", []), "empty-condition", "$.Steps[1].Arguments", "warning"),
]  # fmt: skip

QUOTAS = [
    Fault("201 parameters", "training", lambda d: d["Parameters"].extend({"Name": f"P{n}", "Type": "String"} for n in range(200)), "quota", "$.Parameters"),
    Fault("a definition too long", "training", put("Metadata", {"x": "x" * 1_048_576}), "quota", "$"),
]  # fmt: skip

FAULTS = [*REFERENCES, *CONDITIONS, *QUOTAS]
