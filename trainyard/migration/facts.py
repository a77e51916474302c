"""Find what the names in a script of SDK v2 refer to, before it is rewritten; tables of where SDK
v3 has the names of v2; and the rewriting of imports.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from trainyard.migration.calls import KINDS, STEPS

_NAMED_ARGUMENTS = {"ProcessingInput": ("input", 2), "ProcessingOutput": ("output", 2)}
"""Mapping of a class to the beginning of the name that v2 generates for its objects, and to the
position of the argument with their name."""
DEFAULT_CHANNEL = '"training"'


def render_code(node: cst.CSTNode) -> str:
    """Return the source code of a node."""
    return cst.Module([]).code_for_node(node)


def is_v3(name: str) -> bool:
    """Return whether a fully qualified SDK name belongs to v3."""
    return name.startswith((*IN_V3, "sagemaker.serve.model_builder"))


def find_argument(call: cst.Call, name: str, position: int) -> cst.BaseExpression | None:
    """Return the value of an argument by its name or position; None if it is not given.

    A position of -1 means that the argument is searched only by name.
    """
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
        if arg.keyword is None and not arg.star and index == position:
            return arg.value
    return None


class Facts(cst.CSTVisitor):
    """Finds out which objects of the SDK the names in a script refer to, and which channels its
    training inputs belong to.
    """

    def __init__(self, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self._names = wrapper.resolve(QualifiedNameProvider)
        self.assignments: dict[str, cst.Call | None] = {}
        """Mapping of a variable to the only call whose result is assigned to it; None if other
        values are assigned as well."""
        self.kinds: set[str] = set()
        """Kinds of objects (see ``calls.KINDS``) that the script creates."""
        self.classes: dict[str, set[str]] = {}
        """Mapping of a variable to the classes of v2 whose objects are assigned to it; an empty
        text for any other value."""
        self.variable: dict[cst.Call, str] = {}
        """Mapping of a call to the variable to which its result is assigned."""
        self.own_names: set[str] = set()
        """Names that the script itself assigns."""
        self.dicts: dict[str, cst.Dict] = {}
        """Mapping of a variable to the dictionary that is assigned to it."""
        self.channel: dict[cst.Call, str] = {}
        """Mapping of the creation of a TrainingInput to the code of its channel's name; an empty
        text if it has several."""
        self.channels: set[cst.Dict] = set()
        """Dictionaries that map channels to the inputs of a training or tuning job."""
        self.name: dict[cst.Call, str] = {}
        """Mapping of the creation of a ProcessingInput or ProcessingOutput without a name to the
        code of the name that v2 generates."""
        self.in_steps: set[str] = set()
        """Code of the objects that are passed to a step directly, rather than the result of one of
        their methods."""
        self._fits: list[cst.BaseExpression] = []
        """Inputs of all training and tuning jobs."""

    def find_sdk_name(self, node: cst.CSTNode) -> str | None:
        """Return the full name of the SDK's object that a node refers to; None for other nodes."""
        names: Any = self._names.get(node, ())
        for qualified_name in names() if callable(names) else names:
            is_import = qualified_name.source is QualifiedNameSource.IMPORT
            if is_import and qualified_name.name.split(".")[0] == "sagemaker":
                return qualified_name.name
        return None

    def find_v2_name(self, node: cst.CSTNode) -> str:
        """Return the last part of the name of v2's object that a node refers to; empty if none."""
        name = self.find_sdk_name(node)
        return "" if name is None or is_v3(name) else name.rpartition(".")[2]

    def infer_class(self, value: cst.BaseExpression) -> str:
        """Return the name of v2's class of which an expression is an instance; an empty text if it
        is not an instance of one, or the class is unknown.
        """
        if isinstance(value, cst.Call):
            return self.find_v2_name(value.func)
        classes = self.classes.get(render_code(value), set())
        return min(classes) if len(classes) == 1 else ""

    def infer_kind(self, value: cst.BaseExpression) -> str:
        """Return the kind (see ``calls.KINDS``) of an expression's value; ``""`` if unknown."""
        return KINDS.get(self.infer_class(value), "")

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._note_assignment(render_code(target.target), node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._note_assignment(render_code(node.target), node.value)

    def _note_assignment(self, text: str, value: cst.BaseExpression) -> None:
        """Record that ``value`` is assigned to the variable with the code ``text``."""
        is_known = text in self.own_names
        self.own_names.add(text)
        cls = self.find_v2_name(value.func) if isinstance(value, cst.Call) else ""
        self.classes.setdefault(text, set()).add(cls)
        if isinstance(value, cst.Call):
            self.kinds.add(KINDS.get(self.find_v2_name(value.func), ""))
            self.assignments[text] = None if is_known else value
            self.variable[value] = text
        elif isinstance(value, cst.Dict):
            self.dicts[text] = value
        elif text in self.assignments:
            self.assignments[text] = None

    def visit_Call(self, node: cst.Call) -> None:
        """Note the objects that are passed to steps, and the inputs of training and tuning jobs."""
        name = self.find_v2_name(node.func)
        if name in STEPS:
            holder = find_argument(node, STEPS[name][0], -1)
            if holder is not None:
                self.in_steps.add(render_code(holder))
                self._note_inputs(node, holder)
        if name == "RegisterModel":
            models = [a for a in node.args if a.keyword is not None and a.keyword.value == "model"]
            self.in_steps.update(render_code(model.value) for model in models)
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "fit":
            self._note_inputs(node, node.func.value)

    def _note_inputs(self, node: cst.Call, holder: cst.BaseExpression) -> None:
        """Note the inputs of a call of fit(), or of a step, if ``holder`` is a trainer or tuner."""
        position = 0 if isinstance(node.func, cst.Attribute) else -1
        inputs = find_argument(node, "inputs", position)
        if inputs is not None and self.infer_kind(holder) in ("trainer", "tuner"):
            self._fits.append(inputs)

    def visit_List(self, node: cst.List) -> None:
        """Note the names that v2 generates for unnamed inputs and outputs of processing jobs."""
        for index, element in enumerate(node.elements, 1):
            call = element.value
            if not isinstance(call, cst.Call):
                continue
            prefix, position = _NAMED_ARGUMENTS.get(self.find_v2_name(call.func), ("", 0))
            if prefix and find_argument(call, f"{prefix}_name", position) is None:
                self.name[call] = f'"{prefix}-{index}"'

    def leave_Module(self, original_node: cst.Module) -> None:
        """Note the channel of each TrainingInput that is an input of a training or tuning job."""
        # This is not in visit_Call, because only now the dictionaries of all variables are known.
        for inputs in self._fits:
            by_channel = self.dicts.get(render_code(inputs), inputs)
            if isinstance(by_channel, cst.Dict):
                self.channels.add(by_channel)
                for element in by_channel.elements:
                    if isinstance(element, cst.DictElement):
                        self._note_channel(element.value, render_code(element.key))
            else:
                self._note_channel(inputs, DEFAULT_CHANNEL)

    def _note_channel(self, value: cst.BaseExpression, name: str) -> None:
        """Note that ``name`` is the channel of ``value``, if that is a TrainingInput."""
        call = value if isinstance(value, cst.Call) else self.assignments.get(render_code(value))
        if call is not None and self.find_v2_name(call.func) == "TrainingInput":
            self.channel[call] = name if self.channel.get(call, name) == name else ""


# Tables of the modules in which SDK v3 has the names of SDK v2, and of the reasons why others have
# no counterpart.

_WORKFLOW = {
    "sagemaker.mlops.workflow": {
        "automl_step": "AutoMLStep",
        "callback_step": "CallbackOutput CallbackOutputTypeEnum CallbackStep",
        "check_job_config": "CheckJobConfig",
        "clarify_check_step": "ClarifyCheckConfig ClarifyCheckStep DataBiasCheckConfig "
        "ModelBiasCheckConfig ModelExplainabilityCheckConfig",
        "condition_step": "ConditionStep",
        "emr_step": "EMRStep EMRStepConfig",
        "endpoint_step": "EndpointConfigStep EndpointStep",
        "fail_step": "FailStep",
        "function_step": "DelayedReturn step",
        "inference_component_step": "InferenceComponentStep",
        "lambda_step": "LambdaOutput LambdaOutputTypeEnum LambdaStep",
        "lineage_step": "LineageAssociation LineageEntityReference LineageStep",
        "model_step": "ModelStep",
        "monitor_batch_transform_step": "MonitorBatchTransformStep",
        "notebook_job_step": "NotebookJobStep",
        "parallelism_config": "ParallelismConfiguration",
        "pipeline": "Pipeline PipelineGraph",
        "pipeline_experiment_config": "PipelineExperimentConfig PipelineExperimentConfigProperties "
        "PipelineExperimentConfigProperty",
        "quality_check_step": "DataQualityCheckConfig ModelQualityCheckConfig QualityCheckConfig "
        "QualityCheckStep",
        "retry": "RetryPolicy SageMakerJobExceptionTypeEnum SageMakerJobStepRetryPolicy "
        "StepExceptionTypeEnum StepRetryPolicy",
        "selective_execution_config": "SelectiveExecutionConfig",
        "step_collections": "StepCollection",
        "steps": "CacheConfig ConfigurableRetryStep ProcessingStep Step StepTypeEnum TrainingStep "
        "TransformStep TuningStep",
        "triggers": "PipelineSchedule Trigger",
    },
    "sagemaker.core.workflow": {
        "conditions": "Condition ConditionComparison ConditionEquals ConditionGreaterThan "
        "ConditionGreaterThanOrEqualTo ConditionIn ConditionLessThan ConditionLessThanOrEqualTo "
        "ConditionNot ConditionOr",
        "entities": "Entity",
        "execution_variables": "ExecutionVariable ExecutionVariables",
        "functions": "Join JsonGet",
        "parameters": "Parameter ParameterBoolean ParameterFloat ParameterInteger ParameterString",
        "pipeline_context": "PipelineSession",
        "pipeline_definition_config": "PipelineDefinitionConfig",
        "properties": "Properties PropertiesList PropertiesMap PropertyFile",
        "step_outputs": "get_step",
    },
}
_OTHERS = {
    "sagemaker.core.processing": "FrameworkProcessor Processor ScriptProcessor",
    "sagemaker.core.shapes": "ProcessingInput ProcessingOutput",
    "sagemaker.core.helper.session_helper": "Session get_execution_role",
    "sagemaker.core.helper.pipeline_variable": "PipelineVariable",
    "sagemaker.core.local.local_session": "LocalSession",
    "sagemaker.core.network": "NetworkConfig",
    "sagemaker.core.model_metrics": "FileSource MetricsSource ModelMetrics",
    "sagemaker.core.metadata_properties": "MetadataProperties",
    "sagemaker.core.drift_check_baselines": "DriftCheckBaselines",
    "sagemaker.core.lambda_helper": "Lambda",
    "sagemaker.core.inputs": "BatchDataCaptureConfig CreateModelInput TransformInput",
    "sagemaker.core.transformer": "Transformer",
    "sagemaker.core.spark.processing": "PySparkProcessor SparkJarProcessor",
    "sagemaker.core.parameter": "CategoricalParameter ContinuousParameter IntegerParameter",
    "sagemaker.core.clarify": "BiasConfig DataConfig ModelConfig ModelPredictedLabelConfig "
    "SHAPConfig SageMakerClarifyProcessor",
    "sagemaker.core.model_monitor.dataset_format": "DatasetFormat MonitoringDatasetFormat",
    "sagemaker.core.remote_function.client": "RemoteExecutor remote",
    "sagemaker.core.s3": "S3Downloader S3Uploader is_s3_url parse_s3_url s3_path_join",
    "sagemaker.core.image_uris": "get_training_image_uri retrieve",
    "sagemaker.core.common_utils": "name_from_base unique_name_from_base",
    "sagemaker.mlops.local.local_pipeline_session": "LocalPipelineSession",
    "sagemaker.train.tuner": "HyperparameterTuner WarmStartTypes",
}

PLACES = {
    name: module
    for module, names in {
        **{f"{base}.{part}": names for base, t in _WORKFLOW.items() for part, names in t.items()},
        **_OTHERS,
    }.items()
    for name in names.split()
}
"""Mapping of a name that both v2 and v3 have to its module in v3. In v2, several modules may have
it."""

MODULES = {
    "sagemaker.image_uris": "sagemaker.core.image_uris",
    "sagemaker.s3": "sagemaker.core.s3",
    "sagemaker.s3_utils": "sagemaker.core.s3",
    "sagemaker.utils": "sagemaker.core.common_utils",
    "sagemaker.lambda_helper": "sagemaker.core.lambda_helper",
    "sagemaker.model_uris": "sagemaker.core.model_uris",
    "sagemaker.model_monitor": "sagemaker.core.model_monitor",
    "sagemaker.model_monitor.model_monitoring": "sagemaker.core.model_monitor.model_monitoring",
}
"""Mapping of a module of v2 that scripts use as such to the module of v3."""

IN_V3 = ("sagemaker.core", "sagemaker.mlops", "sagemaker.train", "sagemaker.lineage")
"""Prefixes of the modules of v3. Another one is sagemaker.serve.model_builder, whose counterpart
has another name in v2."""

FRAMEWORKS = {
    "PyTorch": "pytorch",
    "SKLearn": "sklearn",
    "XGBoost": "xgboost",
    "TensorFlow": "tensorflow",
    "HuggingFace": "huggingface",
}
"""Mapping of v2's estimator of a framework to the framework's name in image_uris.retrieve."""

NAME_MODULES = {
    "Channel": "sagemaker.core.training.configs",
    "CheckpointConfig": "sagemaker.core.training.configs",
    "Compute": "sagemaker.core.training.configs",
    "DataSource": "sagemaker.core.training.configs",
    "HyperParameterTuningJobWarmStartConfig": "sagemaker.core.shapes",
    "InputData": "sagemaker.core.training.configs",
    "Networking": "sagemaker.core.training.configs",
    "OutputDataConfig": "sagemaker.core.training.configs",
    "S3DataSource": "sagemaker.core.training.configs",
    "SourceCode": "sagemaker.core.training.configs",
    "StoppingCondition": "sagemaker.core.training.configs",
    "ModelBuilder": "sagemaker.serve.model_builder",
    "ModelTrainer": "sagemaker.train",
    "ParentHyperParameterTuningJob": "sagemaker.core.shapes",
    "ProcessingS3Input": "sagemaker.core.shapes",
    "ProcessingS3Output": "sagemaker.core.shapes",
    "version": "importlib.metadata",
    **{
        class_path.rpartition(".")[2]: class_path.rpartition(".")[0]
        for class_path in MODULES.values()
    },
    **PLACES,
}
"""Mapping of a name that a rewritten script may need to its module."""

ABSENT = {
    "AutoML": "SDK v3 has no class for AutoML jobs; AutoMLStep expects one of SDK v2",
    "FeatureGroup": "the feature store's classes work differently: sagemaker.mlops.feature_store",
    "PipelineModel": "SDK v3 joins containers by ModelBuilder(modelbuilder_list)",
    "ModelBuilder": "SDK v3's ModelBuilder takes other arguments",
    "ModelPackage": "sagemaker.core.resources.ModelPackage only describes one",
    "MultiDataModel": "SDK v3 has no multi-model endpoint",
    "Predictor": "an endpoint of SDK v3 (sagemaker.core.resources.Endpoint) is invoked itself",
    "RLEstimator": "SDK v3 has no reinforcement learning containers",
    "EstimatorTransformer": "write its steps one by one: ModelStep, TransformStep",
    "LineageTableVisualizer": "SDK v3 has no visualizer",
}
"""Mapping of a name of v2 that v3 does not have to a hint for the user."""
NO_COUNTERPART = "no counterpart in SDK v3 is known"


# Rewrite the import statements of a script, so that it imports what it uses from v3's modules.


class Imports(cst.CSTTransformer):
    """Rewrites the import statements of the SDK. New imports are added before the first of them.

    Args:
        old: the script before it was rewritten.
        new: the rewritten script, with its imports as they were.
        needed_names: mapping of a name of v3 that the new script uses to the name under which it
            is imported.
    """

    def __init__(self, old: cst.Module, new: cst.Module, needed_names: Mapping[str, str]) -> None:
        super().__init__()
        self._old, self._new = _find_used_names(old), _find_used_names(new)
        self._needed_names = {
            name: own_name for name, own_name in needed_names.items() if own_name in self._new
        }
        self._waiting = bool(self._needed_names)
        self.kept_names: set[str] = set()
        """Full names of v2 that are still imported."""
        self._depth = 0

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._depth += 1

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Put ``pass`` into a block that is empty because its imports were removed."""
        self._depth -= 1
        if updated_node.body:
            return updated_node
        # The only statement of the block was an import of v2, which was removed.
        return updated_node.with_changes(body=[cst.SimpleStatementLine([cst.Pass()])])

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel | cst.RemovalSentinel:
        """Replace an import of v2; the first one at module level also gets the new imports."""
        lines = self._rewrite_import(updated_node)
        if lines is None:
            return updated_node
        # New imports are not added inside a block: what a function or a try imports is not visible
        # in other places.
        if self._waiting and not self._depth:
            self._waiting = False
            lines = [
                *_render_imports(
                    {(NAME_MODULES[n], n, own_name) for n, own_name in self._needed_names.items()}
                ),
                *lines,
            ]
        if not lines:
            return cst.RemoveFromParent()
        statements = [cst.parse_statement(line) for line in lines]
        first = statements[0].with_changes(leading_lines=updated_node.leading_lines)
        statements = [first, *statements[1:]]
        last = statements[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel([*statements[:-1], last])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Add the new imports at the beginning if no import of v2 was at module level."""
        if not self._waiting:
            return updated_node
        lines = _render_imports(
            {(NAME_MODULES[n], n, own_name) for n, own_name in self._needed_names.items()}
        )
        new = [cst.parse_statement(line) for line in lines]
        return updated_node.with_changes(body=[*new, *updated_node.body])

    def _rewrite_import(self, statement: cst.SimpleStatementLine) -> list[str] | None:
        """Return the statements that replace an import from SDK v2; None for other statements."""
        if len(statement.body) != 1:
            return None
        node = statement.body[0]
        if isinstance(node, cst.ImportFrom) and node.module and not isinstance(
            node.names, cst.ImportStar
        ):  # fmt: skip
            module = render_code(node.module)
            if module.split(".")[0] != "sagemaker" or is_v3(module) or node.relative:
                return None
            return self._move_names(module, node.names)
        if isinstance(node, cst.Import):
            names = [
                (render_code(a.name), a.evaluated_alias or render_code(a.name).split(".")[0], a)
                for a in node.names
            ]
            sdk_names = [name for name, bound, _ in names if name.split(".")[0] == "sagemaker"]
            if not sdk_names or all(is_v3(name) for name in sdk_names):
                return None
            stay = [
                render_code(alias).strip().rstrip(",")
                for name, bound, alias in names
                if name not in sdk_names
                or is_v3(name)
                or bound in self._new
                or bound not in self._old
            ]
            return [f"import {', '.join(stay)}"] if stay else []
        return None

    def _move_names(self, module: str, aliases: Iterable[cst.ImportAlias]) -> list[str]:
        """Return the import statements that replace ``from module import aliases``.

        Names that the new script does not use any more are left out; names without a counterpart
        stay, and are added to ``kept_names``.
        """
        moves: set[tuple[str, str, str]] = set()
        for alias in aliases:
            name = render_code(alias.name)
            bound = alias.evaluated_alias or name
            full = MODULES.get(f"{module}.{name}")
            if (
                bound in self._old and bound not in self._new
            ) or bound in self._needed_names.values():
                continue
            if full:
                moves.add((full.rpartition(".")[0], full.rpartition(".")[2], bound))
            elif name in PLACES:
                moves.add((PLACES[name], name, bound))
            elif bound in self._new:
                moves.add((module, name, bound))
                self.kept_names.add(f"{module}.{name}")
        return _render_imports(moves)


def _render_imports(names: set[tuple[str, str, str]]) -> list[str]:
    """Return import statements for tuples of (module, name, local name)."""
    by_module = defaultdict(list)
    for module, name, bound in sorted(names):
        by_module[module].append(name if name == bound else f"{name} as {bound}")
    lines = []
    for module, items in by_module.items():
        line = f"from {module} import {', '.join(items)}"
        if len(line) > 100:
            line = "\n".join([f"from {module} import (", *(f"    {i}," for i in items), ")"])
        lines.append(line)
    return lines


def _find_used_names(module: cst.Module) -> set[str]:
    """Return the names that occur in a module outside of imports."""
    names: set[str] = set()

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:
            names.add(node.value)

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            node.value.visit(self)
            return False

        def visit_Arg(self, node: cst.Arg) -> bool:
            node.value.visit(self)
            return False

        def visit_Import(self, node: cst.Import) -> bool:
            return False

        def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
            return False

    module.visit(Names())
    return names
