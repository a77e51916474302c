"""List all that is changed in AWS's tests and notebooks, and what is known of them beforehand.

The tests themselves are run as they are. What AWS's accounts have and this machine has not stands
in: a role, images that a test would build with Docker, and data.
"""

ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/trainyard-stand-in:latest"
FIXTURES = {
    "role": ROLE,
    "execution_role": ROLE,
    # tests build these with Docker and push them: a Python with the SDK, which the venv is
    "dummy_container_without_error": IMAGE,
    "dummy_container_with_user_and_workdir": IMAGE,
    "dummy_container_with_conda": IMAGE,
    # the SDK's source as a package, for those images
    "sagemaker_sdk_tar_path": "",
}
"""pytest fixture → the value that it has here."""

IMAGES = "*/trainyard-stand-in:* */sagemaker-tritonserver:*"
"""TRAINYARD_EMULATOR_IMAGES: images that the venv stands in for beside those known."""

LONG_SLEEPS = ("test_triggers",)
"""Their sleeps wait for a schedule. All others end as soon as nothing runs any more."""

MNIST = {
    2: (
        "tests/data/pytorch_mnist/training/MNIST/processed",
        "tests/data/pipeline/model_step/pytorch_mnist/training/MNIST/processed",
    ),
    3: ("sagemaker-mlops/tests/integ/data/mnist/MNIST/processed",),
}
"""Folders whose training.pt and test.pt the snapshot lacks: random digits of the same form."""

ABALONE = "s3://sagemaker-sample-files/datasets/tabular/uci_abalone/abalone.csv"
"""AWS's public bucket: the copy of the file that the checkout has is put there."""

DEFAULT_BUCKETS = tuple(f"sagemaker-{r}-123456789012" for r in ("us-east-1", "us-west-2"))
"""Sessions with a prefix in their bucket take it for made: the SDK only lists it then."""

V2_TESTS = ("tests/integ/sagemaker/workflow",)
V3_TESTS = (
    "sagemaker-mlops/tests/integ/workflow",
    "sagemaker-mlops/tests/integ/test_check_step_kms_propagation.py",
    "sagemaker-mlops/tests/integ/test_clarify.py",
    "sagemaker-mlops/tests/integ/test_hyperparameter_tuning.py",
    "sagemaker-mlops/tests/integ/test_mlflow_integration.py",
    "sagemaker-mlops/tests/integ/test_model_registry.py",
    "sagemaker-mlops/tests/integ/test_processing_job_sklearn.py",
    "sagemaker-mlops/tests/integ/test_pytorch_processing.py",
    "sagemaker-mlops/tests/integ/test_transform_job.py",
)
V3_NOTEBOOKS = "v3-examples/ml-ops-examples"
"""Its notebooks, but those of the feature store, which is no part of pipelines."""

_KMS = "SDK 3.27 puts the key elsewhere than this test of 3.20 looks; it makes no call of AWS"
_FRAMEWORKS = "needs TensorFlow's and MXNet's images"
_ATHENA = "its input is an Athena query"
NOT_HERE: dict[str, str] = {
    "test_one_step_sparkjar_processing_pipeline": "needs Spark and Java",
    "test_one_step_pyspark_processing_pipeline": "needs Spark and Java",
    "test_two_processing_job_depends_on": "needs Spark and Java",
    "test_workflow_with_clarify": "needs Linear Learner's and Clarify's closed images",
    "v3-pipeline-execution-example": "a text with blanks for the ARNs of the reader's pipeline",
    "test_one_step_data_wrangler_processing_pipeline": "needs Data Wrangler's closed image",
    "test_one_step_ingestion_pipeline": "needs Data Wrangler's closed image",
    "test_decorator_with_conda_env": "builds an environment with conda from the internet",
    "test_tensorflow_training_step_with_parameterized_code_input": "needs TensorFlow's image",
    "test_step_decorator_with_include_local_workdir": "installs scipy 1.13.0 from the internet",
    "test_with_user_and_workdir_set_in_the_image": "installs scipy 1.13.0 from the internet",
    "test_tensorflow_model_register_and_deploy_with_runtime_repack": "needs TensorFlow Serving",
    "test_sklearn_xgboost_sip_model_registration": "data that only AWS's account has; pip install",
    "test_multi_step_framework_processing_pipeline_same_source_dir": _FRAMEWORKS,
    "test_multi_step_framework_processing_pipeline_different_source_dir": _FRAMEWORKS,
    "test_output_kms_key_in_arguments": _KMS,
    "test_arguments_are_json_serializable": _KMS,
    "test_pipeline_execution_with_default_experiment_config": _ATHENA,
    "test_pipeline_execution_with_custom_experiment_config": _ATHENA,
    "test_one_step_sklearn_processing_pipeline": _ATHENA,
    "test_one_step_framework_processing_pipeline": _ATHENA,
    "test_pipeline_execution_processing_step_with_retry": _ATHENA,
    "test_three_step_definition": _ATHENA,
    "test_tuning_multi_algos": _ATHENA,
    "test_caching_behavior": _ATHENA,
    "test_steps_with_map_params_pipeline": _ATHENA,
    "test_clarify_e2e": "needs Clarify's closed image",
    "test_pytorch_processing_job": "installs datasets from the internet",
    "test_pipeline_start_with_mlflow_experiment_override": "needs MLflow's managed server",
    "v3-pytorch-processing-example": "downloads CIFAR-10 from the internet",
    "v3-mlflow-train-inference-e2e-example": "needs MLflow's managed server",
    "v3-sagemaker-clarify": "needs Clarify's closed image",
    "v3-lineage-tracking-example": "downloads its model over plain HTTPS from AWS",
}
"""Test → why it cannot work on this machine, whatever the emulator does."""

REFUSED = {
    "AutoML": ("test_automl",),
    "ClarifyCheck": ("test_clarify_check", "clarify_data_bias", "test_workflow_with_clarify"),
    "EMR": ("test_emr", "emr-serverless"),
}
"""Step type that is refused by name → parts of the names of the tests that need it."""

EXPECTED_FAILURES: dict[str, str] = {
    "parallelism_config_override": "fit() has no channel, so the script finds no file to read",
    "test_mxnet_model_registration": "the model is a local path, which is no S3 URI on AWS either",
    "test_decorator_step_failed": "the function raises, and the test asks for its error",
    "test_decorator_step_checksum_mismatch": "the test tampers with the function's code",
    "test_with_user_and_workdir_set_in_the_image_client_error_case": "the function raises",
    "constraint_violation": "the test's data violates the constraints, and the check finds it",
    "failure_case": "the test's data violates the constraints, and the check finds it",
}
"""Part of a test's name → why an execution of it is to end as Failed."""
