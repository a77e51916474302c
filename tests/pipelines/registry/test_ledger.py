"""Looks at a test split: one number for each training, whoever starts it and however often."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from conditions.alpha_spending import compute_significance_level
from pipelines.registry import ledger
from tests.pipelines.test_definition import document as of_definition

pytestmark = pytest.mark.long

BUCKET = "trainyard-laptop"
CHAMPION = {"ChampionArn": "arn:aws:sagemaker:us-east-1:123456789012:model-package/g/1"}


def document(*overrides: str) -> dict:
    return of_definition("recipes/laptop.yaml", *overrides)


@pytest.fixture(scope="module")
def first() -> dict:
    return document()


@pytest.fixture(scope="module")
def client(aws):
    aws("s3").create_bucket(Bucket=BUCKET)
    return aws("s3")


@pytest.fixture
def s3(client):
    """The bucket, without a ledger."""
    yield client
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])


def test_the_same_training_keeps_its_number_and_another_gets_the_next(s3, first):
    assert ledger.find_look(s3, first, CHAMPION).is_counted is False
    assert [ledger.record_look(s3, first, CHAMPION).number for _ in range(3)] == [1, 1, 1]
    again = ledger.find_look(s3, first, CHAMPION)
    assert (again.number, again.is_counted) == (1, True)
    assert again.level == compute_significance_level(again.alpha, 1)
    seed = document("train.loop.seed=1")
    assert ledger.find_look(s3, seed, CHAMPION).number == 2  # looking takes nothing
    assert ledger.record_look(s3, seed, CHAMPION).number == 2
    assert ledger.record_look(s3, first, CHAMPION | {"MaxSteps": "7"}).number == 3
    assert ledger.record_look(s3, first, CHAMPION).number == 1
    # A change that leaves the weights as they are does not count as another look.
    margins = document("gate.non_inferiority={bits_per_byte: 0.5}", "evaluate.baseline_units=9")
    assert ledger.record_look(s3, margins, CHAMPION).number == 1
    assert (
        ledger.record_look(s3, first, CHAMPION | {"TrainInstanceType": "ml.m5.xlarge"}).number == 1
    )
    other = {"ChampionArn": CHAMPION["ChampionArn"].replace("/1", "/2")}
    assert ledger.record_look(s3, first, other).number == 1


@pytest.mark.parametrize(
    ("override", "number"),
    [
        ("workload.config.dim=64", 2),  # another model on the same split
        ("pipeline.name=another", 2),  # whose pipeline it is does not matter
        ("shard.test_share=0.3", 1),  # another split
        ("data.input=s3://elsewhere/raw", 1),
    ],
)
def test_a_look_is_at_one_test_split(override, number, s3, first):
    ledger.record_look(s3, first, CHAMPION)
    extra = ["train.loop.seed=5"] if override.startswith("pipeline.") else []
    assert ledger.record_look(s3, document(override, *extra), CHAMPION).number == number


def test_starts_at_once_get_a_number_each(s3, first):
    """S3 decides: who is too late looks again."""
    given = [CHAMPION | {"MaxSteps": str(steps)} for steps in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda one: ledger.record_look(s3, first, one).number, given))
    assert sorted(numbers) == list(range(1, 9))


def test_without_a_champion_or_a_comparison_nothing_is_spent(s3, first):
    for champion in ("none", "unresolved"):
        assert ledger.record_look(s3, first, {"ChampionArn": champion}) is None
    plain = document("gate={max_bits_per_byte: 2.5}")
    assert "Look" not in {parameter["Name"] for parameter in plain["Parameters"]}
    assert ledger.record_look(s3, plain, CHAMPION) is None
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)


def test_somebody_elses_object_in_the_ledger_uses_its_number_up(s3, first):
    found = ledger.record_look(s3, first, CHAMPION)
    [item] = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    s3.put_object(Bucket=BUCKET, Key=item["Key"].replace("000001", "000002"), Body=b"no json")
    assert found.number == 1
    assert ledger.record_look(s3, document("train.loop.seed=1"), CHAMPION).number == 3


def test_a_scripts_test_split_is_the_addresses_of_its_channels(s3):
    """Another seed is another look at it, other margins are not; another test set has its own
    looks.
    """
    script = "tests/somebodys/recipe.yaml", "aws.bucket=trainyard-laptop"
    train = "evaluate.channels={test: s3://somebodys/data/test, train: s3://somebodys/data/train}"
    for overrides, number in (
        ([], 1),
        (["gate.non_inferiority={log_loss: 0.5}"], 1),
        ([train], 1),
        (["train.arguments={slope: 0.5}"], 2),
        (["evaluate.channels={test: s3://somebodys/data/other}"], 1),
    ):
        assert ledger.record_look(s3, of_definition(*script, *overrides), CHAMPION).number == number
