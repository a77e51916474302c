"""Tests of moto that the emulator rightly fails: AWS itself would not answer what they expect."""

import fnmatch
from typing import NamedTuple


class Argument(NamedTuple):
    """``test``: ``file.py::test`` as a pattern. ``came``: what came has this in it."""

    test: str
    came: str
    reason: str


_LOWER = "SageMaker writes names in lower case into the ARNs of models and configurations"
_NEWEST = "the API reference's default order is Descending: the newest first"
_FAKE = "a fixed user profile of moto's own: AWS names one only for users of Studio"
_PARTIAL = "moto cuts pages before it filters; read to the end, both lists are the same"
_PATTERN = "the API reference's pattern for the name has no underscore"
ARGUED = (
    Argument(
        "test_sagemaker_pipeline.py::*",
        "is not valid JSON",
        "its definition is no definition: CreatePipeline parses it",
    ),
    Argument("*", "needs either PrimaryContainer or Containers", "no model is without a container"),
    Argument("test_sagemaker_endpoint.py::*", "endpoint-config/MyEndpointConfig", _LOWER),
    Argument("*::test_list_model_*_job_definitions", "obdefinition2", _NEWEST),
    Argument("test_sagemaker_model_packages.py::*", "'CreatedBy'", _FAKE),
    Argument("test_sagemaker_model_packages.py::*", "LastModifiedBy", _FAKE),
    Argument(
        "test_sagemaker_model_packages.py::test_list_model_packages",
        "already exists",
        "it makes two packages of one name; CreateModelPackage asks for a unique one",
    ),
    Argument("*::test_list_processing_jobs_paginated_*", "'NextToken'", _PARTIAL),
    Argument("*::test_list_processing_jobs_paginated_*", "assert 1 == 0", _PARTIAL),
    Argument(
        "test_sagemaker_trial_component.py::test_create_trial_component",
        "Parameters",
        "nothing was given as Parameters, and DescribeTrialComponent has no such member then",
    ),
    Argument("test_sagemaker_search.py::*", "experiment_name", _PATTERN),
    Argument("test_sagemaker_search.py::*", "mpg_DEV", _PATTERN),
    Argument(
        "test_sagemaker_hyper_parameter_tuning_job.py::*",
        "expected one of TrainingJobDef",
        "there is nothing to tune without a training job's definition",
    ),
    Argument(
        "test_sagemaker_pipeline.py::test_load_pipeline_definition_from_s3",
        "MissingBucket",
        "it asks moto's Python objects, not the endpoint",
    ),
    Argument(
        "test_sagemaker_processing.py::test_stop_processing_job",
        "in status",
        "the job really ran, and had ended when it was to be stopped",
    ),
    Argument(
        "test_sagemaker_trial_component.py::test_disassociate_trial_component",
        "ResourceNotFound",
        "DisassociateTrialComponent has that error for a trial that is not there",
    ),
)


def argument(test: str, came: str) -> str:
    """Why the test may fail with that; empty where it may not."""
    found = (a.reason for a in ARGUED if fnmatch.fnmatchcase(test, a.test) and a.came in came)
    return next(found, "")
