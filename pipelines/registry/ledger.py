"""Keep the ledger of looks. A look is a comparison of a new model with a champion on a test split.

    s3://<bucket>/<aws.prefix>/looks/<test split and champion>/<number>.json

With enough attempts, a new model is better on one test split by luck alone. So every look has a
number, and the higher it is, the smaller its allowed error (``conditions.alpha_spending``). The
number is found when an execution is started, like the champion. Two simultaneous starts get two
numbers, by conditional writes in S3. The looks of all pipelines below ``aws.prefix`` count.

One look is one training. The same training again, whether retried, cached or judged with other
margins, gives the same model and the same limits, so it keeps its number. A test split is
identified by its raw data and by how records are drawn for it; that of an evaluation script by the
URIs of its channels. Other code, or another model on the same records, is another look at the same
split.
"""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from conditions.alpha_spending import compute_significance_level
from conditions.no_champion import NONE, UNRESOLVED_ARN
from pipelines.delivery.upsert_lock import LOST_RACE, identify_process
from pipelines.registry import recompute
from pipelines.registry.package_evidence import Evidence
from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.common.hashes import hash_json
from trainyard.language.definition_document import Step, iter_steps
from trainyard.language.evaluation import UnstartedScope, evaluate_value
from trainyard.language.expressions import resolve_parameters
from trainyard.language.step_types import get_step_type
from trainyard.plan.definition_diff import CODE

THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """Number of a comparison on a test split (look): as the verdict used it, and as it was due."""

    used: int
    due: int
    champion: str


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """A model that a gate compared with a champion."""

    artifact: str | None
    test: str | None
    champion: str | None


def recount_looks(evidence: Evidence) -> Recount | None:
    """Count the comparisons on the test split (looks) again; return the used and the due number, or
    None if the verdict compares with no champion.

    An execution without a number gets one now.

    Raises:
        ServiceError: AWS refused.
    """
    sagemaker, s3 = (create_client(name, evidence.region) for name in ("sagemaker", "s3"))
    document = json.loads(evidence.definition)
    with service_errors(f"counting the looks of {evidence.arn}"):
        ledger_look = record_look(s3, document, evidence.parameters)
        if ledger_look is None:
            return None
        gate = evidence.read_json(evidence.find_source("Constraints")["S3Uri"])
        judged_model = _read_judged_model(gate)
        pipeline = evidence.metadata["execution"].split("/")[1]
        earlier_models = [
            o
            for o in dict.fromkeys(iter_judged_models(sagemaker, s3, pipeline))
            if (o.test, o.champion) == (judged_model.test, judged_model.champion)
        ]
    # The ledger counts training runs, the verdicts count models: a run that is not reproducible
    # gives two models when it is repeated, and a copy of the data is the same test split. The
    # number in the gate's own verdict is a parameter, which may have been set to any value.
    rank = (
        earlier_models.index(judged_model) + 1
        if judged_model in earlier_models
        else len(earlier_models) + 1
    )
    used = gate.get("look")
    return Recount(
        used=used if isinstance(used, int) else 0,
        due=max(ledger_look.number, rank),
        champion=ledger_look.champion,
    )


def check_due_look(evidence: Evidence, look_recount: Recount, checkout: Path) -> str:
    """Return a note on the comparison's number (look); if a higher one was due, judge the model
    again with that number.

    Raises:
        GateError: with the due number, the model does not pass, or this cannot be computed here.
    """
    if look_recount.used >= look_recount.due:
        return f"look {look_recount.used} at its test split"
    due_look = f"look {look_recount.due} at its test split, judged as look {look_recount.used}"
    refusal = f"not approved: it was {due_look}"
    recompute.require_gate_pass(evidence, checkout, refusal, look_number=look_recount.due)
    return f"{due_look}, and again as it was due: pass"


def iter_judged_models(sagemaker: Any, s3: Any, pipeline: str) -> Iterator[JudgedModel]:
    """Yield the model of every verdict of the pipeline, oldest first; each job once."""
    pages = sagemaker.get_paginator("list_pipeline_executions").paginate(
        PipelineName=pipeline, SortBy="CreationTime", SortOrder="Ascending"
    )
    executions = [e["PipelineExecutionArn"] for p in pages for e in p["PipelineExecutionSummaries"]]
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = dict.fromkeys(pool.map(lambda arn: _find_gate_job(sagemaker, arn), executions))
        gates = pool.map(
            lambda job: _read_verdict(sagemaker, s3, job), [job for job in jobs if job]
        )
        yield from (_read_judged_model(gate) for gate in gates if gate)


def _read_judged_model(gate: dict[str, Any]) -> JudgedModel:
    """Return the judged model, its test split and its champion, as gate.json names them."""
    return JudgedModel(
        gate.get("artifact_sha256"), gate.get("test_fingerprint"), gate.get("champion")
    )


def _find_gate_job(sagemaker: Any, execution: str) -> str | None:
    """Return the name of the execution's gate job; None if the gate did not succeed."""
    pages = sagemaker.get_paginator("list_pipeline_execution_steps").paginate(
        PipelineExecutionArn=execution
    )
    for step in (step for page in pages for step in page["PipelineExecutionSteps"]):
        if step["StepName"] == "Gate" and step["StepStatus"] == "Succeeded":
            return step["Metadata"]["ProcessingJob"]["Arn"].rpartition("/")[2]
    return None


def _read_verdict(sagemaker: Any, s3: Any, job: str) -> dict[str, Any] | None:
    """Return gate.json of a gate job; None if it was deleted, or is not JSON."""
    job_description = sagemaker.describe_processing_job(ProcessingJobName=job)
    outputs = job_description["ProcessingOutputConfig"]["Outputs"]
    uri = next(o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == "gate")
    location = urlsplit(f"{uri}/gate.json")
    try:
        body = s3.get_object(Bucket=location.netloc, Key=location.path.lstrip("/"))["Body"].read()
        document = json.loads(body)
    except ClientError as error:
        if read_error_code(error) in ("NoSuchKey", "NoSuchBucket"):
            return None
        raise
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


PARAMETER = "Look"
AUTOMATIC_PARAMETERS = ("ChampionArn", "ChampionModelUri", PARAMETER)
"""Parameters of an execution that ``pipelines.start`` sets, and users must not."""
DRAWN_BY = ("--validation_share", "--test_share", "--key", "--unique")
"""Arguments of the shard job that decide which records are in the test split."""
TRAIN_CHANNEL = "train"
"""Channel of an evaluation script that is searched for leaks, but not tested on."""
ATTEMPTS = 50  # each one fails if another start takes the number first


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLook:
    """Number of one comparison with one champion on one test split (a look)."""

    number: int
    is_counted: bool
    """Whether the ledger contains it already."""
    champion: str
    alpha: float
    """Significance level that the recipe allows: 1 - confidence."""

    @property
    def level(self) -> float:
        """Return the significance level of this comparison, a part of ``alpha``."""
        return compute_significance_level(self.alpha, self.number)


def find_look(
    s3: Any, document: Mapping[str, Any], run_parameters: Mapping[str, Any]
) -> TestLook | None:
    """Return the number of an execution's comparison on its test split (look): its own or the next.

    Return None if the execution needs no number: its model is compared with no champion, or its
    pipeline does not count looks.

    Args:
        document: the pipeline's definition.
        run_parameters: the execution's parameters, including ChampionArn.

    Raises:
        ClientError: AWS refused.
    """
    page = _find_page(document, run_parameters)
    return page.find_look(s3) if page else None


def record_look(
    s3: Any, document: Mapping[str, Any], run_parameters: Mapping[str, Any]
) -> TestLook | None:
    """Return the execution's look, as ``find_look`` does, and write its number to the ledger.

    Raises:
        ClientError: AWS refused.
        ServiceError: other starts kept taking the number first.
    """
    page = _find_page(document, run_parameters)
    if page is None:
        return None
    for _ in range(ATTEMPTS):
        next_look = page.find_look(s3)
        if next_look.is_counted or page.write_number(s3, next_look.number):
            return next_look
    raise ServiceError(f"{page.uri}: others keep taking the next look; try again")


def describe_look(test_look: TestLook) -> str:
    """Describe the look in one line."""
    return (
        f"look {test_look.number} at this test split against {test_look.champion}: "
        f"significance level {test_look.level:.2g}, of α {test_look.alpha:.2g} for all looks"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Ledger page of the comparisons on one test split with one champion, read for one training."""

    bucket: str
    prefix: str
    about: Mapping[str, Any]
    training: str
    alpha: float

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def find_look(self, s3: Any) -> TestLook:
        """Return the training's look in the ledger, or the next free number."""
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        names = [item["Key"] for page in pages for item in page.get("Contents", ())]
        with ThreadPoolExecutor(THREADS) as pool:
            bodies = pool.map(lambda key: s3.get_object(Bucket=self.bucket, Key=key), names)
            trainings = [_read_training_hash(body["Body"].read()) for body in bodies]
        numbers = {
            _parse_look_number(key): training
            for key, training in zip(names, trainings, strict=True)
        }
        own_numbers = [number for number, training in numbers.items() if training == self.training]
        return TestLook(
            number=min(own_numbers, default=max(numbers, default=0) + 1),
            is_counted=bool(own_numbers),
            champion=self.about["champion"],
            alpha=self.alpha,
        )

    def write_number(self, s3: Any, number: int) -> bool:
        """Write the number to the ledger; return False if another start took it first."""
        timestamp = datetime.now(UTC).isoformat(timespec="seconds")
        body = {**self.about, "training": self.training, "by": identify_process(), "at": timestamp}
        try:
            s3.put_object(
                Bucket=self.bucket,
                Key=f"{self.prefix}{number:06}.json",
                Body=json.dumps(body, indent=1).encode(),
                # Of two simultaneous starts, only one can write the object; the other takes the
                # next number.
                IfNoneMatch="*",
            )
        except ClientError as error:
            if read_error_code(error) in LOST_RACE:
                return False
            raise
        return True


def _find_page(document: Mapping[str, Any], run_parameters: Mapping[str, Any]) -> _Page | None:
    """Return the ledger's page that counts the execution's comparison; None if none does."""
    parameters = resolve_parameters(
        document, {name: str(value) for name, value in run_parameters.items()}
    )
    champion = parameters.get("ChampionArn")
    if PARAMETER not in parameters or champion in (None, NONE, UNRESOLVED_ARN):
        return None
    steps = {step.name: step for step in iter_steps(document["Steps"])}
    start = UnstartedScope(
        parameters, otherwise=str
    )  # values known only during the run stay as names
    making_steps = [name for name in ("Shard", "Train") if name in steps]
    # Only the arguments that affect a job's result; the machines do not.
    job_arguments = {
        name: evaluate_value(
            {
                key: steps[name].arguments.get(key)
                for key in get_step_type(steps[name].type).cache_key
            },
            start,
        )
        for name in making_steps
    }
    draw_settings = describe_test_split(job_arguments["Shard"]) if "Shard" in job_arguments else {}
    about = {"champion": champion, "split": draw_settings | find_test_channels(steps["Evaluate"])}
    uris = [entry["S3Input"]["S3Uri"] for entry in steps["Gate"].arguments["ProcessingInputs"]]
    code = next(match for uri in uris if isinstance(uri, str) and (match := CODE.fullmatch(uri)))
    # The gate's code is below the pipeline's folder, which is in ``aws.prefix``.
    root = code["key"].partition("/code/")[0].rpartition("/")[0]
    return _Page(
        bucket=code["bucket"],
        prefix=f"{root}/looks/{_hash_value(about)}/",
        about=about,
        training=_hash_value(job_arguments),
        alpha=1 - float(_list_option_values(steps["Gate"].arguments, "--confidence")[0]),
    )


def describe_test_split(shard: Mapping[str, Any]) -> dict[str, Any]:
    """Return what determines the test split: the raw data, and how records are drawn from it."""
    inputs = {i["InputName"]: i["S3Input"]["S3Uri"] for i in shard["ProcessingInputs"]}
    input_uris = sorted(uri for name, uri in inputs.items() if name.startswith("raw-"))
    return {"input": input_uris or inputs["raw"]} | {
        n: _list_option_values(shard, n) for n in DRAWN_BY
    }


def find_test_channels(step: Step) -> dict[str, Any]:
    """Return the URIs of the test data that are constant: of a script's test channels, and of
    shards that no step of the pipeline writes.
    """
    names = {*_list_option_values(step.arguments, "--channels"), "test"}
    input_uris = {i["InputName"]: i["S3Input"]["S3Uri"] for i in step.arguments["ProcessingInputs"]}
    test_channels = {
        n: input_uris[n] for n in names - {TRAIN_CHANNEL} if isinstance(input_uris.get(n), str)
    }
    return {"channels": test_channels} if test_channels else {}


def _list_option_values(arguments: Mapping[str, Any], option: str) -> list[str]:
    """Return the words after an option of a processing job, up to the next option."""
    words = arguments["AppSpecification"].get("ContainerArguments") or []
    option_values: list[str] = []
    for word in words[words.index(option) + 1 :] if option in words else ():
        if isinstance(word, str) and word.startswith("--"):
            break
        option_values.append(word)
    return option_values


def _read_training_hash(body: bytes) -> str | None:
    """Return the hash of the training in a look's record; None if it is not ours."""
    try:
        return json.loads(body).get("training")
    except (ValueError, AttributeError):  # written by something else: its number counts as used
        return None


def _parse_look_number(key: str) -> int:
    """Return the look's number in an object's key; 0 if it has none."""
    match = re.search(r"(\d+)\.json$", key)
    return int(match[1]) if match else 0


def _hash_value(value: Any) -> str:
    return hash_json(value)[:32]
