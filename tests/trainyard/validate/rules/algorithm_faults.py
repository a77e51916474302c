"""Mistakes in hyperparameters of AWS's own XGBoost algorithm; and what is near them."""

from typing import Any

from tests.trainyard.validate.rules.definitions import Change, put, run_uri, s3_channel
from tests.trainyard.validate.rules.fault import OWN_IMAGE, TUNED, of

ACCOUNT = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
XGBOOST = f"{ACCOUNT}/sagemaker-xgboost:3.0-5"
OLD = f"{ACCOUNT}/sagemaker-xgboost:1.0-1-cpu-py3"
LATER = {"Get": "Steps.Shard.ProcessingJobName"}
RANGES = "HyperParameterTuningJobConfig.ParameterRanges"


def trains(image: str = XGBOOST, **values: Any) -> tuple[Change, Change]:
    """The training step is the algorithm's, with these hyperparameters and ``num_round``."""
    given = {"num_round": "100", **values}
    return (
        put("Train", "AlgorithmSpecification.TrainingImage", image),
        put("Train", "HyperParameters", {n: v for n, v in given.items() if v is not None}),
    )


def tunes(kind: str, name: str, **fields: Any) -> tuple[Change, ...]:
    """The tuning step is the algorithm's, and searches one range."""
    return (
        put("Tune", f"{TUNED}.AlgorithmSpecification.TrainingImage", XGBOOST),
        put("Tune", f"{TUNED}.StaticHyperParameters", {"num_round": "100"}),
        put("Tune", RANGES, {f"{kind}ParameterRanges": [{"Name": name, **fields}]}),
    )


def spread(kind: str, name: str, low: str, high: str) -> tuple[Change, ...]:
    return tunes(kind, name, MinValue=low, MaxValue=high)


def judged(metric: str, kind: str, *channels: str) -> tuple[Change, ...]:
    """The tuning step is the algorithm's, with this objective; ``channels``: train and others."""
    objective = {"Type": kind, "MetricName": metric}
    found = [s3_channel(name, "s3://b3b/x", "File") for name in channels or ("train", "validation")]
    return (
        *spread("Continuous", "eta", "0.1", "0.5"),
        put("Tune", "HyperParameterTuningJobConfig.HyperParameterTuningJobObjective", objective),
        put("Tune", f"{TUNED}.InputDataConfig", found),
    )


def reads(**channels: str | None) -> tuple[Change, ...]:
    """The training step is the algorithm's, with these channels → ContentType."""
    found = [
        s3_channel(name, "s3://b3b/x", "File") | ({"ContentType": kind} if kind else {})
        for name, kind in channels.items()
    ]
    return (*trains(), put("Train", "InputDataConfig", found))


def with_static(changes: tuple[Change, ...], **values: str) -> tuple[Change, ...]:
    return (*changes, put("Tune", f"{TUNED}.StaticHyperParameters", values))


OF_ALGORITHMS = (
    *of(
        "xgboost-hyperparameter",
        unknown=trains(max_dept="5"),
        of_scikit_learn=trains(n_estimators="100"),
        no_number=trains(eta="fast"),
        no_whole_number=trains(max_depth="5.5"),
        too_large=trains(subsample="1.5"),
        open_end=trains(colsample_bytree="0"),
        objective=trains(objective="binary:logloss"),
        metric=trains(eval_metric="auc,logless"),
        no_rounds=trains(num_round="0"),
        alias=trains(learning_rate="2"),
        gone_since_an_image=trains(silent="0"),
        static_of_tuning=with_static(spread("Integer", "num_round", "1", "9"), booster="tree"),
    ),
    *of(
        "xgboost-without-rounds",
        train=trains(num_round=None, max_depth="5"),
        tuning=with_static(spread("Integer", "max_depth", "1", "9"), eta="0.1"),
    ),
    *of(
        "xgboost-hyperparameters-at-odds",
        classes=trains(objective="multi:softmax"),
        auc_of_a_regression=trains(objective="reg:squarederror", eval_metric="auc"),
        constraints_by_default=trains(monotone_constraints="(1,0)"),
        updater=trains(booster="gblinear", updater="prune"),
    ),
    *of(
        "xgboost-range",
        unknown=spread("Continuous", "etta", "0.1", "0.5"),
        too_high=spread("Continuous", "eta", "0.1", "1.5"),
        too_low=spread("Integer", "num_round", "0", "10"),
        whole=spread("Continuous", "max_depth", "3", "9"),
        category=tunes("Categorical", "objective", Values=["reg:linear", "reg:cubic"]),
    ),
    *of(
        "xgboost-objective",
        unknown=judged("validation:rmsee", "Minimize"),
        of_the_training_data=judged("train:rmse", "Minimize"),
        other_way=judged("validation:auc", "Minimize"),
        no_validation_data=judged("validation:rmse", "Minimize", "train"),
    ),
    *of(
        "xgboost-channels",
        another_name=reads(training="text/csv"),
        another_type=reads(train="text/cvs"),
        one_more=reads(train=None, test=None),
    ),
    *of(
        "xgboost-not-tunable",
        objective=tunes("Categorical", "objective", Values=["reg:linear", "reg:squarederror"]),
        bins=spread("Integer", "max_bin", "16", "256"),
    ),
)

NEAR_ALGORITHMS = (
    *of(
        "checkpoints-of-one-run",
        algorithm=(*trains(), put("Train", "CheckpointConfig.S3Uri", run_uri("checkpoints"))),
    ),
    *of(
        "xgboost-hyperparameter",
        at_the_ends=trains(eta="0", subsample="1", gamma="0", verbosity="3"),
        later=trains(max_depth=LATER),
        aliases=trains(reg_lambda="1", min_split_loss="0.5"),
        two_metrics=trains(objective="binary:logistic", eval_metric="auc,error@0.7"),
        old_image=trains(OLD, silent="0"),
        exponent=trains(alpha="1e-3"),
        own_image=trains(OWN_IMAGE, max_dept="5"),
        own_script=trains(sagemaker_program="train.py", epochs="5"),
        own_start=(
            *trains(epochs="5"),
            put("Train", "AlgorithmSpecification.ContainerEntrypoint", ["python3"]),
        ),
    ),
    *of(
        "xgboost-without-rounds",
        later=trains(num_round=LATER),
        rounds_are_tuned=with_static(spread("Integer", "num_round", "1", "9"), eta="0.1"),
        own_script=trains(num_round=None, sagemaker_program="train.py"),
    ),
    *of(
        "xgboost-hyperparameters-at-odds",
        with_classes=trains(objective="multi:softprob", num_class="3"),
        auc=trains(objective="rank:pairwise", eval_metric="auc"),
        method=trains(monotone_constraints="(1,0)", tree_method="hist"),
        later=trains(objective=LATER, eval_metric="auc"),
        tuned=with_static(
            tunes("Categorical", "objective", Values=["binary:logistic"]),
            num_round="9",
            eval_metric="auc",
        ),
    ),
    *of(
        "xgboost-range",
        ends=spread("Continuous", "eta", "0", "1"),
        from_zero=spread("Integer", "max_depth", "0", "10"),
        whole_of_a_number=spread("Integer", "min_child_weight", "1", "120"),
        alias=spread("Continuous", "learning_rate", "0.1", "0.5"),
        later=tunes("Continuous", "eta", MinValue="0.1", MaxValue=LATER),
        own_image=(
            *spread("Continuous", "etta", "0.1", "0.5"),
            put("Tune", f"{TUNED}.AlgorithmSpecification.TrainingImage", OWN_IMAGE),
        ),
    ),
    *of(
        "xgboost-objective",
        lower=judged("validation:rmse", "Minimize"),
        higher=judged("validation:auc", "Maximize"),
        own_script=with_static(judged("loss", "Minimize"), sagemaker_program="train.py"),
    ),
    *of(
        "xgboost-channels",
        csv=reads(train="text/csv; label_size=1", validation="text/csv"),
        default=reads(train=None),
        own_script=(*reads(training=None), *trains(sagemaker_program="train.py")),
    ),
    *of("xgboost-not-tunable", documented=spread("Continuous", "alpha", "0", "1000")),
)
