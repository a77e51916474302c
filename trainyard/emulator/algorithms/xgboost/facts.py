"""Facts shared by the emulator and the algorithm in the job: metric names, versions, formats."""

import re

_FIRST_XGBOOST = frozenset(
    "104374241257 106583098589 226302683700 237065988967 249704162688 257386234256 272398656194 "
    "286214385809 306986355934 387376663083 390948362332 433757028032 455444449433 469771592824 "
    "475088953585 490574956308 501404015308 544295431143 628508329040 632365934929 644912444149 "
    "669576153137 680994064768 685385470294 749696950732 765400339828 811284229777 813361260812 "
    "825641698319 855470959533 867004704886 951798379941 991648021394".split()
)
"""AWS accounts with the first XGBoost image, whose repository is named ``xgboost``: SDK 3.27,
sagemaker/core/image_uri_config/xgboost.json.
"""
OTHERS = frozenset(
    "blazingtext factorization-machines forecasting-deepar image-classification ipinsights kmeans "
    "knn lda linear-learner ntm object-detection object2vec pca randomcutforest "
    "semantic-segmentation seq2seq".split()
)
"""Repositories of the images of AWS's other algorithms: those with version 1 in SDK 3.27,
sagemaker/core/image_uri_config.
"""
SCRIPT = "sagemaker_program"
"""The hyperparameter with which SDK v2 names a script."""
MAXIMIZED_METRICS = (
    "accuracy",
    "auc",
    "aucpr",
    "balanced_accuracy",
    "f1",
    "f1_binary",
    "f1_macro",
    "map",
    "ndcg",
    "precision",
    "r2",
    "recall",
    "precision_macro",
    "precision_micro",
    "recall_macro",
    "recall_micro",
)
MINIMIZED_METRICS = (
    "aft-nloglik",
    "cox-nloglik",
    "error",
    "gamma-deviance",
    "gamma-nloglik",
    "interval-regression-accuracy",
    "logloss",
    "mae",
    "mape",
    "merror",
    "mlogloss",
    "mphe",
    "mse",
    "poisson-nloglik",
    "rmse",
    "rmsle",
    "tweedie-nloglik",
)
MODEL = "xgboost-model"
"""File name of the model, below /opt/ml/model."""
CSV, LIBSVM, PARQUET, RECORDIO = "csv", "libsvm", "parquet", "recordio-protobuf"
CONTENT_TYPES = {
    CSV: CSV,
    "text/csv": CSV,
    LIBSVM: LIBSVM,
    "text/libsvm": LIBSVM,
    "text/x-libsvm": LIBSVM,
    PARQUET: PARQUET,
    "application/x-parquet": PARQUET,
    RECORDIO: RECORDIO,
    "application/x-recordio-protobuf": RECORDIO,
}
"""ContentType of a channel, without its parameters, to the format of its files."""
_NUMBER = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
_VERSION = re.compile(r"(\d+)\.(\d+)-")


def parse_repository(image: str) -> str:
    """Return the part of ``image`` between the last slash and the tag or digest."""
    return image.rsplit("@", 1)[0].rsplit("/", 1)[-1].split(":", maxsplit=1)[0]


def is_xgboost_image(image: str) -> bool:
    """Return whether ``image`` is one of AWS's images of the XGBoost algorithm."""
    name = parse_repository(image)
    first = name == "xgboost" and image.partition(".dkr.ecr.")[0] in _FIRST_XGBOOST
    return first or name == "sagemaker-xgboost"


def is_other_algorithm_image(image: str) -> bool:
    """Return whether ``image`` is that of one of AWS's other algorithms."""
    return parse_repository(image) in OTHERS and ".dkr.ecr." in image and image.endswith(":1")


def list_metric_definitions() -> list[dict[str, str]]:
    """Return the MetricDefinitions that SageMaker itself adds to a job of the XGBoost algorithm.

    They have the form of AWS's DescribeTrainingJob response. On AWS the list depends on the
    version; here it has all metrics.
    """
    return [
        {"Name": f"{data}:{metric}", "Regex": rf".*\[[0-9]+\].*#011{data}-{metric}:{_NUMBER}.*"}
        for metric in (*MAXIMIZED_METRICS, *MINIMIZED_METRICS)
        for data in ("train", "validation")
    ]


def parse_version(image: str) -> tuple[int, int]:
    """Return the version of an image: (1, 0) for ``…/sagemaker-xgboost:1.0-1-cpu-py3``.

    A tag without a version (``xgboost:1``, ``xgboost:latest``) means the first image, which has
    XGBoost 0.72: the result is (0, 72). An image named by its digest counts as the newest: (99, 0).
    """
    name = image.rsplit("/", 1)[-1]
    if "@" in name:
        return 99, 0
    match = _VERSION.match(name.partition(":")[2])
    return (int(match[1]), int(match[2])) if match else (0, 72)


def find_file_format(content_type: str | None) -> str | None:
    """Return the file format that a channel's ContentType means: libsvm if there is no ContentType,
    None if it is unknown.
    """
    if content_type is None:
        return LIBSVM
    return CONTENT_TYPES.get(content_type.lower().partition(";")[0].strip())


def parse_label_size(content_type: str) -> str:
    """Return the parameter label_size of a type such as ``text/csv; label_size=1``, as text. The
    default, ``1``, is the only value that the algorithm accepts.
    """
    match = re.search(r";\s*label_size\s*=\s*([^;\s]+)", content_type.lower())
    return match[1] if match else "1"
