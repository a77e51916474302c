"""Changes that make a training another one, and changes that do not."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.compile.compilation import collect_step_code
from tests.training.trainings import CHECKOUT, config
from training.config import IMMATERIAL, TrainConfig
from training.export.shipped_files import WITHOUT_EFFECT
from training.identity import Parts, build_parts, hash_relevant_code, read_code_files

JOB = CHECKOUT / "steps/train/job.py"
MODEL = {"context_length": 64, "layers": 1, "heads": 2, "dim": 32}


def build_test_parts(files: dict[str, bytes] | None = None, settings=MODEL, **fields) -> Parts:
    code = {"training/loop.py": b"loop"} if files is None else files
    return build_parts(config(**fields), "language_model", settings, code)


@pytest.mark.parametrize(
    "fields",
    [{"log_interval": 3}, {"keep_checkpoints": 9}, {"strategy": "single"}, {"micro_batch": 4},
     {"tensor_parallel": 2}, {"strategy": "fsdp", "shard_degree": 2}],
)  # fmt: skip
def test_how_the_ranks_share_the_work_makes_no_other_training(fields):
    assert build_test_parts(**fields).name == build_test_parts().name


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"max_steps": 11}, "max_steps 10 → 11"), ({"seed": 1}, "seed 0 → 1"),
     ({"precision": "float32"}, "precision auto → float32"),
     ({"learning_rate": 0.02}, "learning_rate 0.01 → 0.02")],
)  # fmt: skip
def test_a_setting_that_shapes_the_weights_does_and_is_named(fields, said):
    assert build_test_parts(**fields).name != build_test_parts().name
    assert build_test_parts(**fields).describe_differences(build_test_parts()) == {
        next(iter(fields)): said
    }


def test_every_setting_shapes_the_weights_or_is_listed():
    assert {*build_test_parts().settings} == {*TrainConfig.model_fields} - IMMATERIAL


def test_data_torch_and_the_workloads_settings_do():
    base = build_test_parts().model_copy(update={"data": "f" * 64, "torch": "2.8.0"})
    others = [
        base.model_copy(update={"data": "e" * 64}),
        base.model_copy(update={"torch": "2.9.0"}),
        build_test_parts(settings=MODEL | {"dim": 64}).model_copy(
            update={"data": "f" * 64, "torch": "2.8.0"}
        ),
    ]
    assert len({base.name, *(other.name for other in others)}) == 4
    assert [list(other.describe_differences(base)) for other in others] == [
        ["data"], ["torch"], ["workload_config.dim"],
    ]  # fmt: skip


def test_settings_are_compared_by_what_they_mean():
    """A default written out, and another order of the JSON, are the same settings."""
    written = json.loads(json.dumps(build_test_parts().workload_config))
    assert (
        build_test_parts(settings=dict(reversed(written.items()))).name == build_test_parts().name
    )


names = st.sampled_from(
    ["training/loop.py", "training/new/deep.py", "training/optimizers.py", "steps/train/job.py",
     "training/workloads/__init__.py", "training/workloads/language_model/model.py"]
)  # fmt: skip
others = st.sampled_from(
    ["trainyard/common/errors.py", "requirements.txt", "steps/job_main.py", "steps/evaluate/job.py",
     "mine/model.py",
     "training/workloads/tabular/model.py", "training/__pycache__/loop.pyc", ".git/HEAD",
     *sorted(WITHOUT_EFFECT)]
)  # fmt: skip


@given(st.dictionaries(names, st.binary(max_size=4), min_size=1), st.data())
def test_every_byte_of_code_that_shapes_weights_counts(files, data):
    name = data.draw(st.sampled_from(sorted(files)))
    before, changed = build_test_parts(files), build_test_parts(files | {name: files[name] + b"#"})
    assert before.name != changed.name
    assert changed.describe_differences(before) == {"code": f"code (~ {name})"}
    assert build_test_parts({n: b for n, b in files.items() if n != name}).name != before.name


VALUES = st.sampled_from([None, 0, 1, 1.0, True, "1", [1], {}])
PARTS = st.builds(
    Parts,
    workload=st.sampled_from("vw"),
    workload_config=st.dictionaries(st.sampled_from("ab"), VALUES),
    settings=st.dictionaries(st.sampled_from(["seed", "max_steps"]), st.integers(0, 1)),
    code=st.dictionaries(names, st.sampled_from("01")),
    data=st.sampled_from([None, "f"]),
    torch=st.sampled_from([None, "2.8.0"]),
    start=st.none() | st.dictionaries(st.sampled_from(["model"]), st.sampled_from("01")),
)


@given(PARTS, PARTS)
def test_two_trainings_have_one_name_exactly_when_nothing_differs(one: Parts, other: Parts):
    assert (one.name == other.name) == (not one.describe_differences(other))


@given(st.dictionaries(names, st.binary(max_size=4)), st.dictionaries(others, st.binary()))
def test_what_travels_and_shapes_no_weight_does_not_count(files, beside):
    assert build_test_parts(files).name == build_test_parts(files | beside).name


def test_a_users_package_counts_with_all_that_lies_beside_it_and_all_shipped_workloads():
    """The package may import any of them."""
    files = {"mine/model.py": b"1", "vocabulary.json": b"2", "trainyard/common/errors.py": b"3"}
    files |= {"training/workloads/tabular/model.py": b"4"}
    assert {*hash_relevant_code(files, "mine.model")} == {*files} - {"trainyard/common/errors.py"}


@pytest.mark.parametrize("workload", ["language_model", "tabular"])
def test_the_job_counts_the_code_that_the_definition_sends(workload):
    sent = hash_relevant_code(collect_step_code(CHECKOUT, "train", None), workload)
    assert sent == hash_relevant_code(read_code_files(workload, JOB), workload)
    assert len(sent) > 30


def test_so_it_does_for_a_users_package_where_the_job_finds_it(tmp_path: Path, monkeypatch):
    """Unpacked as in the container: beside training/ and steps/, with caches in between."""
    source, bundle = tmp_path / "source", tmp_path / "code"
    (source / "owned_by_me/net").mkdir(parents=True)
    for name in ("owned_by_me/__init__.py", "owned_by_me/net/config.py", "common.py", "words.txt"):
        (source / name).write_text(f"# {name}")
    files = collect_step_code(CHECKOUT, "train", source)
    for name, body in files.items():
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(body)
    (bundle / "__pycache__").mkdir()
    (bundle / "__pycache__/common.cpython-311.pyc").write_bytes(b"cache")
    monkeypatch.syspath_prepend(str(bundle))
    sent = hash_relevant_code(files, "owned_by_me.net")
    found = hash_relevant_code(
        read_code_files("owned_by_me.net", bundle / "steps/train/job.py"), "owned_by_me.net"
    )
    assert found == sent and {"common.py", "words.txt", "owned_by_me/net/config.py"} <= {*sent}
    del sys.modules["owned_by_me"]
