"""Mistakes in the valid definition: tuning, metrics, addresses; and what is near them."""

from typing import Any

from tests.trainyard.validate.rules.definitions import (
    GPU_IMAGE,
    REGISTRY,
    Change,
    add,
    default,
    hyper,
    put,
)
from tests.trainyard.validate.rules.fault import OWN_IMAGE, TUNED, environment, image, of

CONFIG = "HyperParameterTuningJobConfig"
LIMITS = f"{CONFIG}.ResourceLimits"
ALIAS = "arn:aws:kms:us-east-1:111122223333:alias/team/ours"
QUEUE = "https://sqs.us-east-1.amazonaws.com/111122223333/answers"


def searched(kind: str, **fields: Any) -> Change:
    """One range of the tuning step, and nothing else."""
    given = {"Name": "lr", "MinValue": "0.1", "MaxValue": "0.9", "ScalingType": "Auto", **fields}
    return put("Tune", f"{CONFIG}.ParameterRanges", {f"{kind}ParameterRanges": [given]})


def objective(metric: str) -> Change:
    goal = {"Type": "Minimize", "MetricName": metric}
    return put("Tune", f"{CONFIG}.HyperParameterTuningJobObjective", goal)


def metrics(step: str = "Tune", **expressions: str) -> Change:
    found = [{"Name": name, "Regex": regex} for name, regex in expressions.items()]
    where = f"{TUNED}." if step == "Tune" else ""
    return put(step, f"{where}AlgorithmSpecification.MetricDefinitions", found)


def categories(*values: str) -> Change:
    ranges = {"CategoricalParameterRanges": [{"Name": "c", "Values": list(values)}]}
    return put("Tune", f"{CONFIG}.ParameterRanges", ranges)


def strategy(name: str, **resources: int) -> Change:
    """The strategy, with what HyperbandStrategyConfig has."""

    def changed(definition: dict[str, Any]) -> None:
        put("Tune", f"{CONFIG}.Strategy", name)(definition)
        if resources:
            own = {"HyperbandStrategyConfig": resources}
            put("Tune", f"{CONFIG}.StrategyConfig", own)(definition)

    return changed


def static(**values: str) -> Change:
    return put("Tune", f"{TUNED}.StaticHyperParameters", values)


def categorical(name: str) -> Change:
    ranges = {"CategoricalParameterRanges": [{"Name": name, "Values": ["1", "2"]}]}
    return put("Tune", f"{CONFIG}.ParameterRanges", ranges)


def many(change: Change) -> Change:
    """The tuning step with a list of training definitions, each with ranges of its own."""

    def changed(definition: dict[str, Any]) -> None:
        change(definition)
        arguments = next(s for s in definition["Steps"] if s["Name"] == "Tune")["Arguments"]
        one = arguments.pop(TUNED)
        moved = {
            "ParameterRanges": "HyperParameterRanges",
            "HyperParameterTuningJobObjective": "TuningObjective",
        }
        for name, new in moved.items():
            if name in arguments[CONFIG]:
                one[new] = arguments[CONFIG].pop(name)
        arguments["TrainingJobDefinitions"] = [one]

    return changed


def callback(url: Any) -> Change:
    def changed(definition: dict[str, Any]) -> None:
        step = {"Name": "Ask", "Type": "Callback", "SqsQueueUrl": url, "Arguments": {}}
        definition["Steps"].append({**step, "OutputParameters": []})

    return changed


def parameter(name: str, value: str) -> Change:
    """One more parameter with this default."""

    def changed(definition: dict[str, Any]) -> None:
        entry = {"Name": name, "Type": "String", "DefaultValue": value}
        definition["Parameters"].append(entry)

    return changed


def first(change: Change, then: Change) -> tuple[Change, Change]:
    return change, then


OF_TUNING = (
    *of(
        "more-parallel-than-jobs",
        five_of_four=put("Tune", f"{LIMITS}.MaxParallelTrainingJobs", 5),
        one_job=put("Tune", f"{LIMITS}.MaxNumberOfTrainingJobs", 1),
    ),
    *of(
        "objective-without-metric",
        undefined=(objective("accuracy"), metrics(loss="loss=([0-9.]+)")),
        none_on_awss_image=objective("loss"),
        of_a_definition=many(objective("accuracy")),
    ),
    *of(
        "range-from-high-to-low",
        continuous=searched("Continuous", MinValue="0.1", MaxValue="1e-5"),
        integer=searched("Integer", MinValue="64", MaxValue="8"),
        of_a_definition=many(searched("Integer", MinValue="64", MaxValue="8")),
    ),
    *of(
        "scaling-outside-its-range",
        from_zero=searched("Continuous", MinValue="0", ScalingType="Logarithmic"),
        below_zero=searched("Integer", MinValue="-4", MaxValue="9", ScalingType="Logarithmic"),
        reverse_to_one=searched("Continuous", MaxValue="1", ScalingType="ReverseLogarithmic"),
        reverse_below_zero=searched(
            "Continuous", MinValue="-0.1", ScalingType="ReverseLogarithmic"
        ),
    ),
    *of(
        "range-of-one-value",
        continuous=searched("Continuous", MinValue="0.9"),
        integer=searched("Integer", MinValue="4", MaxValue="4"),
    ),
    *of(
        "bound-that-is-no-number",
        word=searched("Continuous", MaxValue="many"),
        infinite=searched("Continuous", MaxValue="inf"),
        not_whole=searched("Integer", MinValue="1", MaxValue="2.5"),
        of_a_definition=many(searched("Integer", MinValue="1", MaxValue="x")),
    ),
    *of(
        "category-twice",
        one=categories("a", "b", "a"),
        of_a_definition=many(categories("a", "a")),
    ),
    *of(
        "grid-of-numbers",
        continuous=(searched("Continuous"), strategy("Grid")),
        integer=(searched("Integer", MinValue="1", MaxValue="3"), strategy("Grid")),
    ),
    *of(
        "hyperband-without-resource",
        nothing=(static(), strategy("Hyperband")),
        least_only=(static(rounds="9"), strategy("Hyperband", MinResource=2)),
    ),
    *of(
        "hyperband-with-early-stopping",
        auto=(strategy("Hyperband"), put("Tune", f"{CONFIG}.TrainingJobEarlyStoppingType", "Auto")),
    ),
    *of(
        "static-and-tuned",
        epochs=categorical("epochs"),
        of_a_definition=many(categorical("epochs")),
    ),
    *of(
        "malformed-metric-regex",
        bracket=metrics("Train", loss="loss=([0-9.]+"),
        of_tuning=metrics(loss="loss=([0-9.+)"),
        too_many_copies=metrics("Train", loss="(x{1000}){1001}(.)"),
        nothing_to_repeat=metrics("Train", loss="*loss=([0-9]+)"),
    ),
    *of(
        "metric-regex-without-group",
        train=metrics("Train", loss="loss=[0-9.]+"),
        of_tuning=metrics(loss=r"loss=\([0-9.]+\)"),
        only_marked=metrics("Train", loss="loss=(?:[0-9.]+)"),
    ),
    *of(
        "malformed-key-arn",
        account=put(
            "Train",
            "OutputDataConfig.KmsKeyId",
            "arn:aws:kms:us-east-1:11112222333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        ),
        service=put("Train", "OutputDataConfig.KmsKeyId", "arn:aws:iam::111122223333:role/key"),
        no_resource=put("Score", "TransformOutput.KmsKeyId", "arn:aws:kms:us-east-1:111122223333:"),
        by_default=first(
            put("Train", "OutputDataConfig.KmsKeyId", {"Get": "Parameters.InputUri"}),
            default("InputUri", "arn:aws:kms:key/1234abcd"),
        ),
    ),
    *of(
        "stray-white-space",
        behind_an_image=image(f"{GPU_IMAGE} "),
        of_processing=put("Shard", "AppSpecification.ImageUri", f" {OWN_IMAGE}"),
        in_an_image=put("Tune", f"{TUNED}.AlgorithmSpecification.TrainingImage", "a image:1"),
        of_a_model=put(
            "Register", "InferenceSpecification.Containers.0.Image", f"{REGISTRY}/x:1\n"
        ),
        behind_a_location=put("Train", "CheckpointConfig.S3Uri", "s3://bucket/checkpoints "),
    ),
    *of(
        "no-queue-url",
        arn=callback("arn:aws:sqs:us-east-1:111122223333:answers"),
        name=callback("answers"),
        no_account=callback("https://sqs.us-east-1.amazonaws.com/answers"),
    ),
    *of(
        "secret-in-plain-text",
        token=environment("Train", HF_TOKEN="hf_abcdefghij"),
        token_in_camel_case=hyper("Train", accessToken="abcdefghij"),
        url=environment("Train", TRACKING="https://ci:hunter2@mlflow.example.com/"),
        url_of_a_hyperparameter=hyper("Train", database="postgresql://ml:hunter2@db:5432/runs"),
        signed_url=environment("Shard", SOURCE="https://example.com/x?id=1&access_token=abcdef"),
        option=add("Shard", "AppSpecification.ContainerArguments", "--api_key=abcdef"),
        option_and_value=put(
            "Shard", "AppSpecification.ContainerArguments", ["--hub-token", "abcdef"]
        ),
        default_of_a_parameter=parameter("DbPassword", "hunter2"),
        url_of_a_parameter=parameter("Database", "mysql://ml:hunter2@db/runs"),
        argument_of_a_function=put("Notify", "webhook_token", "abcdef"),
        by_default=first(
            environment("Train", DB_PASSWORD={"Get": "Parameters.InputUri"}),
            default("InputUri", "hunter2"),
        ),
    ),
)

NEAR_TUNING = (
    *of(
        "more-parallel-than-jobs",
        as_many=put("Tune", f"{LIMITS}.MaxParallelTrainingJobs", 4),
        no_limit=put("Tune", LIMITS, {"MaxParallelTrainingJobs": 9}),
        later=put("Tune", f"{LIMITS}.MaxParallelTrainingJobs", {"Get": "Execution.PipelineArn"}),
    ),
    *of(
        "objective-without-metric",
        defined=(objective("loss"), metrics(loss="loss=([0-9.]+)")),
        own_image=(
            objective("validation:rmse"),
            put("Tune", f"{TUNED}.AlgorithmSpecification.TrainingImage", OWN_IMAGE),
        ),
        no_objective=metrics(loss="loss=([0-9.]+)"),
    ),
    *of("range-from-high-to-low", order_of_numbers=searched("Integer", MinValue="9", MaxValue="10"),
        of_words=categorical("lr")),
    *of(
        "scaling-outside-its-range",
        above_zero=searched("Continuous", MinValue="1e-9", ScalingType="Logarithmic"),
        linear_from_zero=searched("Continuous", MinValue="0", ScalingType="Linear"),
        reverse=searched("Continuous", MinValue="0", ScalingType="ReverseLogarithmic"),
    ),
    *of("range-of-one-value", of_words=categories("a"), two=searched("Continuous")),
    *of(
        "bound-that-is-no-number",
        exponent=searched("Continuous", MinValue="1e-5"),
        later=searched("Continuous", MaxValue={"Get": "Execution.PipelineArn"}),
    ),
    *of("category-twice", cases=categories("a", "A")),
    *of(
        "grid-of-numbers",
        categories=(categories("1", "2"), strategy("Grid")),
        random=(searched("Continuous"), strategy("Random")),
    ),
    *of(
        "hyperband-without-resource",
        of_epochs=strategy("Hyperband"),
        given=(static(), strategy("Hyperband", MaxResource=9)),
        random=(static(), strategy("Random")),
    ),
    *of(
        "hyperband-with-early-stopping",
        off=(strategy("Hyperband"), put("Tune", f"{CONFIG}.TrainingJobEarlyStoppingType", "Off")),
        bayesian=put("Tune", f"{CONFIG}.TrainingJobEarlyStoppingType", "Auto"),
    ),
    *of("static-and-tuned", another=categorical("epoch"), definition=many(categorical("lr"))),
    *of(
        "malformed-metric-regex",
        flag_inside=metrics("Train", loss=r"loss=(\d+)(?i)"),
        escaped=metrics("Train", loss=r"\[(\d+)\]"),
        other_dialects=metrics("Train", loss=r"\p{L}+=(?<value>[0-9.]+)"),
    ),
    *of(
        "metric-regex-without-group",
        named=metrics("Train", loss="loss=(?P<loss>[0-9.]+)"),
        two=metrics("Train", loss="loss=([0-9]+(.|e-)[0-9]+)"),
        in_its_own_dialect=metrics("Train", loss="loss=(?<value>[0-9.]+)"),
    ),
    *of(
        "malformed-key-arn",
        alias=put("Train", "OutputDataConfig.KmsKeyId", ALIAS),
        name=put("Train", "OutputDataConfig.KmsKeyId", "alias/ours"),
        id=put("Train", "OutputDataConfig.KmsKeyId", "1234abcd-12ab-34cd-56ef-1234567890ab"),
        of_many_regions=put(
            "Train",
            "OutputDataConfig.KmsKeyId",
            "arn:aws-us-gov:kms:us-gov-west-1:111122223333:key/mrk-" + "0a" * 16,
        ),
    ),
    *of(
        "stray-white-space",
        inside_a_key=put("Train", "CheckpointConfig.S3Uri", "s3://bucket/my checkpoints/a"),
        elsewhere=environment("Shard", NOTE=" two words "),
    ),
    *of(
        "no-queue-url",
        url=callback(QUEUE),
        fifo=callback(f"{QUEUE}.fifo"),
        china=callback("https://sqs.cn-north-1.amazonaws.com.cn/111122223333/a"),
        later=callback({"Get": "Parameters.InputUri"}),
    ),
    *of(
        "secret-in-plain-text",
        of_a_language_model=hyper("Train", pad_token="<pad>", max_new_tokens="9"),
        number=hyper("Train", token="7"),
        tokens=environment("Shard", TOKENIZERS_PARALLELISM="false"),
        no_password=environment("Shard", TRACKING="https://mlflow.example.com:8080/a@b"),
        placeholder=environment("Shard", TRACKING="https://ci:${PASSWORD}@mlflow.example.com/"),
        where_it_is=environment("Shard", DB_PASSWORD_FILE="/run/x", API_TOKEN_SECRET_NAME="prod/a"),
        parameter=parameter("Tokenizer", "s3://bucket/tokenizer"),
        option_without_value=put(
            "Shard", "AppSpecification.ContainerArguments", ["--use_token", "--key", "a"]
        ),
    ),
)  # fmt: skip
