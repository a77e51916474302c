"""Where SDK v3 has the names of SDK v2, and why it has no counterpart of others."""

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
"""Name that v2 and v3 both have → its module in v3. In v2 it may be imported from several."""

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
"""Module of v2 that is used as such → the one of v3."""

IN_V3 = ("sagemaker.core", "sagemaker.mlops", "sagemaker.train", "sagemaker.lineage")
"""Modules of v3; so is sagemaker.serve.model_builder, whose like v2 has under another name."""

FRAMEWORKS = {
    "PyTorch": "pytorch",
    "SKLearn": "sklearn",
    "XGBoost": "xgboost",
    "TensorFlow": "tensorflow",
    "HuggingFace": "huggingface",
}
"""v2's estimator of a framework → what image_uris.retrieve calls it."""

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
    **{place.rpartition(".")[2]: place.rpartition(".")[0] for place in MODULES.values()},
    **PLACES,
}
"""Name that a moved call needs → its module."""

ABSENT = {
    "AutoML": "SDK v3 has no class for AutoML jobs; AutoMLStep wants one of SDK v2",
    "FeatureGroup": "the feature store's classes work otherwise: sagemaker.mlops.feature_store",
    "PipelineModel": "SDK v3 joins containers by ModelBuilder(modelbuilder_list)",
    "ModelBuilder": "SDK v3's ModelBuilder takes other arguments",
    "ModelPackage": "sagemaker.core.resources.ModelPackage only describes one",
    "MultiDataModel": "SDK v3 has no multi-model endpoint",
    "Predictor": "an endpoint of SDK v3 (sagemaker.core.resources.Endpoint) is invoked itself",
    "RLEstimator": "SDK v3 has no reinforcement learning containers",
    "EstimatorTransformer": "write its steps one by one: ModelStep, TransformStep",
    "LineageTableVisualizer": "SDK v3 has no visualizer",
}
"""Name of v2 that v3 lacks → what to know."""
NO_COUNTERPART = "no counterpart in SDK v3 is known"
