"""Mistakes in the valid definition: tuning, metrics, addresses, AWS's algorithm XGBoost."""

from functools import partial
from typing import Any

from tests.trainyard.validate.rules.definitions import (
    GPU_IMAGE,
    REGISTRY,
    Change,
    default,
    put,
    run_uri,
    s3_channel,
)
from tests.trainyard.validate.rules.fault import (
    LATER,
    OWN_IMAGE,
    TUNED,
    URI,
    checkpoints,
    environment,
    image,
    job_image,
    near,
    output_key,
    seed,
    tuned_image,
)

CONFIG = "HyperParameterTuningJobConfig"
ALIAS = "arn:aws:kms:us-east-1:111122223333:alias/team/ours"
QUEUE = "https://sqs.us-east-1.amazonaws.com/111122223333/answers"
ACCOUNT = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
XGBOOST = f"{ACCOUNT}/sagemaker-xgboost:3.0-5"
OLD = f"{ACCOUNT}/sagemaker-xgboost:1.0-1-cpu-py3"


def searches(field: str, value: Any) -> Change:
    return put("Tune", f"{CONFIG}.{field}", value)


parallel = partial(searches, "ResourceLimits.MaxParallelTrainingJobs")
jobs = partial(searches, "ResourceLimits.MaxNumberOfTrainingJobs")
stops_early = partial(searches, "TrainingJobEarlyStoppingType")


def ranges(kind: str, **fields: Any) -> Change:
    """One range of the tuning step, and nothing else."""
    return searches("ParameterRanges", {f"{kind}ParameterRanges": [fields]})


def floats(low: str = "0.1", high: Any = "0.9", scale: str = "Auto") -> Change:
    return ranges("Continuous", Name="lr", MinValue=low, MaxValue=high, ScalingType=scale)


def set_integer_range(low: str, high: str, scale: str = "Auto") -> Change:
    return ranges("Integer", Name="lr", MinValue=low, MaxValue=high, ScalingType=scale)


def categories(*values: str, name: str = "c") -> Change:
    return ranges("Categorical", Name=name, Values=list(values))


def category(name: str) -> Change:
    return categories("1", "2", name=name)


def objective(metric: str, kind: str = "Minimize") -> Change:
    return searches("HyperParameterTuningJobObjective", {"Type": kind, "MetricName": metric})


def regex(expression: str) -> Change:
    found = [{"Name": "loss", "Regex": expression}]
    return put("Train", "AlgorithmSpecification.MetricDefinitions", found)


def tuned_regex(expression: str) -> Change:
    found = [{"Name": "loss", "Regex": expression}]
    return put("Tune", f"{TUNED}.AlgorithmSpecification.MetricDefinitions", found)


def strategy(name: str, **resources: int) -> Change:
    """The strategy, with what HyperbandStrategyConfig has."""

    def set_strategy(definition: dict[str, Any]) -> None:
        searches("Strategy", name)(definition)
        if resources:
            searches("StrategyConfig", {"HyperbandStrategyConfig": resources})(definition)

    return set_strategy


def static(**values: str) -> Change:
    return put("Tune", f"{TUNED}.StaticHyperParameters", values)


def many(change: Change) -> Change:
    """The tuning step with a list of training definitions, each with ranges of its own."""
    moved = {
        "ParameterRanges": "HyperParameterRanges",
        "HyperParameterTuningJobObjective": "TuningObjective",
    }

    def move_training_definition(definition: dict[str, Any]) -> None:
        change(definition)
        arguments = next(s for s in definition["Steps"] if s["Name"] == "Tune")["Arguments"]
        one = arguments.pop(TUNED)
        one |= {moved[n]: arguments[CONFIG].pop(n) for n in moved if n in arguments[CONFIG]}
        arguments["TrainingJobDefinitions"] = [one]

    return move_training_definition


def callback(url: Any) -> Change:
    step = {"Name": "Ask", "Type": "Callback", "SqsQueueUrl": url, "Arguments": {}}
    return lambda definition: definition["Steps"].append({**step, "OutputParameters": []})


def trains(image: str = XGBOOST, **values: Any) -> tuple[Change, Change]:
    """The training step is the algorithm's, with these hyperparameters and ``num_round``."""
    given = {"num_round": "100", **values}
    return (
        put("Train", "AlgorithmSpecification.TrainingImage", image),
        put("Train", "HyperParameters", {n: v for n, v in given.items() if v is not None}),
    )


def tunes(kind: str, name: str, **fields: Any) -> tuple[Change, ...]:
    """The tuning step is the algorithm's, and searches one range."""
    return tuned_image(XGBOOST), static(num_round="100"), ranges(kind, Name=name, **fields)


def spread(name: str, low: str, high: str) -> tuple[Change, ...]:
    return tunes("Continuous", name, MinValue=low, MaxValue=high)


def spread_whole(name: str, low: str, high: str) -> tuple[Change, ...]:
    return tunes("Integer", name, MinValue=low, MaxValue=high)


def set_objective(metric: str, *channels: str, kind: str = "Minimize") -> tuple[Change, ...]:
    """The tuning step is the algorithm's, with this objective; ``channels``: train and others."""
    found = [s3_channel(name, "s3://b3b/x", "File") for name in channels or ("train", "validation")]
    data = put("Tune", f"{TUNED}.InputDataConfig", found)
    return *spread("eta", "0.1", "0.5"), objective(metric, kind), data


def reads(**channels: str | None) -> tuple[Change, ...]:
    """The training step is the algorithm's, with these channels → ContentType."""
    found = [
        s3_channel(name, "s3://b3b/x", "File") | ({"ContentType": kind} if kind else {})
        for name, kind in channels.items()
    ]
    return *trains(), put("Train", "InputDataConfig", found)


def with_static(changes: tuple[Change, ...], **values: str) -> tuple[Change, ...]:
    return *changes, static(**values)


OF_TUNING = (
    *seed("more-parallel-than-jobs", parallel(5), jobs(1)),
    *near(
        "more-parallel-than-jobs",
        parallel(4),
        searches("ResourceLimits", {"MaxParallelTrainingJobs": 9}),
        parallel(LATER),
    ),
    *seed(
        "objective-without-metric",
        (objective("accuracy"), tuned_regex("loss=([0-9.]+)")),
        objective("loss"),
        many(objective("accuracy")),
    ),
    *near(
        "objective-without-metric",
        (objective("loss"), tuned_regex("loss=([0-9.]+)")),
        (objective("validation:rmse"), tuned_image(OWN_IMAGE)),
        tuned_regex("loss=([0-9.]+)"),
    ),
    *seed(
        "range-from-high-to-low",
        floats(low="0.1", high="1e-5"),
        set_integer_range(low="64", high="8"),
        many(set_integer_range(low="64", high="8")),
    ),
    *near("range-from-high-to-low", set_integer_range(low="9", high="10"), category("lr")),
    *seed(
        "scaling-outside-its-range",
        floats(low="0", scale="Logarithmic"),
        set_integer_range(low="-4", high="9", scale="Logarithmic"),
        floats(high="1", scale="ReverseLogarithmic"),
        floats(low="-0.1", scale="ReverseLogarithmic"),
    ),
    *near(
        "scaling-outside-its-range",
        floats(low="1e-9", scale="Logarithmic"),
        floats(low="0", scale="Linear"),
        floats(low="0", scale="ReverseLogarithmic"),
    ),
    *seed("range-of-one-value", floats(low="0.9"), set_integer_range(low="4", high="4")),
    *near("range-of-one-value", categories("a"), floats()),
    *seed(
        "bound-that-is-no-number",
        floats(high="many"),
        floats(high="inf"),
        set_integer_range(low="1", high="2.5"),
        many(set_integer_range(low="1", high="x")),
    ),
    *near("bound-that-is-no-number", floats(low="1e-5"), floats(high=LATER)),
    *seed("category-twice", categories("a", "b", "a"), many(categories("a", "a"))),
    *near("category-twice", categories("a", "A")),
    *seed(
        "grid-of-numbers",
        (floats(), strategy("Grid")),
        (set_integer_range(low="1", high="3"), strategy("Grid")),
    ),
    *near(
        "grid-of-numbers", (categories("1", "2"), strategy("Grid")), (floats(), strategy("Random"))
    ),
    *seed(
        "hyperband-without-resource",
        (static(), strategy("Hyperband")),
        (static(rounds="9"), strategy("Hyperband", MinResource=2)),
    ),
    *near(
        "hyperband-without-resource",
        strategy("Hyperband"),
        (static(), strategy("Hyperband", MaxResource=9)),
        (static(), strategy("Random")),
    ),
    *seed("hyperband-with-early-stopping", (strategy("Hyperband"), stops_early("Auto"))),
    *near(
        "hyperband-with-early-stopping",
        (strategy("Hyperband"), stops_early("Off")),
        stops_early("Auto"),
    ),
    *seed("static-and-tuned", category("epochs"), many(category("epochs"))),
    *near("static-and-tuned", category("epoch"), many(category("lr"))),
    *seed(
        "malformed-metric-regex",
        regex("loss=([0-9.]+"),
        tuned_regex("loss=([0-9.+)"),
        regex("(x{1000}){1001}(.)"),
        regex("*loss=([0-9]+)"),
    ),
    *near(
        "malformed-metric-regex",
        regex(r"loss=(\d+)(?i)"),
        regex(r"\[(\d+)\]"),
        regex(r"\p{L}+=(?<value>[0-9.]+)"),
    ),
    *seed(
        "metric-regex-without-group",
        regex("loss=[0-9.]+"),
        tuned_regex(r"loss=\([0-9.]+\)"),
        regex("loss=(?:[0-9.]+)"),
    ),
    *near(
        "metric-regex-without-group",
        regex("loss=(?P<loss>[0-9.]+)"),
        regex("loss=([0-9]+(.|e-)[0-9]+)"),
        regex("loss=(?<value>[0-9.]+)"),
    ),
    *seed(
        "malformed-key-arn",
        output_key("arn:aws:kms:us-east-1:11112222333:key/1234abcd-12ab-34cd-56ef-1234567890ab"),
        output_key("arn:aws:iam::111122223333:role/key"),
        put("Score", "TransformOutput.KmsKeyId", "arn:aws:kms:us-east-1:111122223333:"),
        (output_key(URI), default("InputUri", "arn:aws:kms:key/1234abcd")),
    ),
    *near(
        "malformed-key-arn",
        output_key(ALIAS),
        output_key("alias/ours"),
        output_key("1234abcd-12ab-34cd-56ef-1234567890ab"),
        output_key("arn:aws-us-gov:kms:us-gov-west-1:111122223333:key/mrk-" + "0a" * 16),
    ),
    *seed(
        "stray-white-space",
        image(f"{GPU_IMAGE} "),
        job_image("Shard", f" {OWN_IMAGE}"),
        tuned_image("a image:1"),
        put("Register", "InferenceSpecification.Containers.0.Image", f"{REGISTRY}/x:1\n"),
        checkpoints("s3://bucket/checkpoints "),
    ),
    *near(
        "stray-white-space",
        checkpoints("s3://bucket/my checkpoints/a"),
        environment("Shard", NOTE=" two words "),
    ),
    *seed(
        "no-queue-url",
        callback("arn:aws:sqs:us-east-1:111122223333:answers"),
        callback("answers"),
        callback("https://sqs.us-east-1.amazonaws.com/answers"),
    ),
    *near(
        "no-queue-url",
        callback(QUEUE),
        callback(f"{QUEUE}.fifo"),
        callback("https://sqs.cn-north-1.amazonaws.com.cn/111122223333/a"),
        callback(URI),
    ),
    *seed(
        "xgboost-hyperparameter",
        trains(max_dept="5"),
        trains(eta="fast"),
        trains(max_depth="5.5"),
        trains(subsample="1.5"),
        trains(colsample_bytree="0"),
        trains(objective="binary:logloss"),
        trains(eval_metric="auc,logless"),
        trains(num_round="0"),
        trains(learning_rate="2"),
        trains(silent="0"),
        with_static(spread_whole("num_round", "1", "9"), booster="tree"),
    ),
    *near(
        "xgboost-hyperparameter",
        trains(eta="0", subsample="1", gamma="0", verbosity="3"),
        trains(max_depth=LATER),
        trains(reg_lambda="1", min_split_loss="0.5"),
        trains(objective="binary:logistic", eval_metric="auc,error@0.7"),
        trains(OLD, silent="0"),
        trains(alpha="1e-3"),
        trains(OWN_IMAGE, max_dept="5"),
        trains(sagemaker_program="train.py", epochs="5"),
        (
            *trains(epochs="5"),
            put("Train", "AlgorithmSpecification.ContainerEntrypoint", ["python3"]),
        ),
    ),
    *seed(
        "xgboost-without-rounds",
        trains(num_round=None, max_depth="5"),
        with_static(spread_whole("max_depth", "1", "9"), eta="0.1"),
    ),
    *near(
        "xgboost-without-rounds",
        trains(num_round=LATER),
        with_static(spread_whole("num_round", "1", "9"), eta="0.1"),
    ),
    *seed(
        "xgboost-hyperparameters-at-odds",
        trains(objective="multi:softmax"),
        trains(objective="reg:squarederror", eval_metric="auc"),
        trains(monotone_constraints="(1,0)"),
        trains(booster="gblinear", updater="prune"),
    ),
    *near(
        "xgboost-hyperparameters-at-odds",
        trains(objective="multi:softprob", num_class="3"),
        trains(objective="rank:pairwise", eval_metric="auc"),
        trains(monotone_constraints="(1,0)", tree_method="hist"),
        trains(objective=LATER, eval_metric="auc"),
        with_static(
            tunes("Categorical", "objective", Values=["binary:logistic"]),
            num_round="9",
            eval_metric="auc",
        ),
    ),
    *seed(
        "xgboost-range",
        spread("etta", "0.1", "0.5"),
        spread("eta", "0.1", "1.5"),
        spread_whole("num_round", "0", "10"),
        spread("max_depth", "3", "9"),
        tunes("Categorical", "objective", Values=["reg:linear", "reg:cubic"]),
    ),
    *near(
        "xgboost-range",
        spread("eta", "0", "1"),
        spread_whole("max_depth", "0", "10"),
        spread_whole("min_child_weight", "1", "120"),
        spread("learning_rate", "0.1", "0.5"),
        tunes("Continuous", "eta", MinValue="0.1", MaxValue=LATER),
        (*spread("etta", "0.1", "0.5"), tuned_image(OWN_IMAGE)),
    ),
    *seed(
        "xgboost-objective",
        set_objective("validation:rmsee"),
        set_objective("train:rmse"),
        set_objective("validation:auc"),
        set_objective("validation:rmse", "train"),
    ),
    *near(
        "xgboost-objective",
        set_objective("validation:rmse"),
        set_objective("validation:auc", kind="Maximize"),
    ),
    *seed(
        "xgboost-channels",
        reads(training="text/csv"),
        reads(train="text/cvs"),
        reads(train=None, test=None),
    ),
    *near(
        "xgboost-channels",
        reads(train="text/csv; label_size=1", validation="text/csv"),
        reads(train=None),
    ),
    *seed(
        "xgboost-not-tunable",
        tunes("Categorical", "objective", Values=["reg:linear", "reg:squarederror"]),
        spread_whole("max_bin", "16", "256"),
    ),
    *near("xgboost-not-tunable", spread("alpha", "0", "1000")),
    *near("checkpoints-of-one-run", (*trains(), checkpoints(run_uri("checkpoints")))),
)
