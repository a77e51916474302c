"""Whatever is wrong with a field: its file and line, its value, what is expected, an example."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.recipe.config import Recipe
from pipelines.recipe.extended_recipe import Problem, RecipeProblems
from pipelines.recipe.read_recipe import _list_options, as_yaml, load_recipe, make_example
from pipelines.recipe.schema import list_workloads
from tests.conftest import CHECKOUT
from training.workloads import load_spec

LAPTOP = CHECKOUT / "recipes/laptop.yaml"
Schema = Mapping[str, Any]
Leaf = tuple[tuple[str, ...], Schema]
KEYS = {"ranges": "learning_rate"}
"""Field that holds a mapping → a name that may stand in it."""
REGEX = ("^", "\\d", "\\S", "\\w", "[a-z", "{1,", "(?", "pattern")


def leaves(node: Schema, root: Schema, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield each field that holds a value, at every place of the model where it may stand."""
    for option in _list_options(node, root):
        if "properties" in option:
            for name, inner in option["properties"].items():
                yield from leaves(inner, root, (*path, name))
        elif option.get("type") == "array":
            yield path, option
            for index, inner in enumerate(option.get("prefixItems", [option.get("items", {})])):
                yield from leaves(inner, root, (*path, str(index)))
        elif isinstance(inner := option.get("additionalProperties"), Mapping):
            yield path, option
            yield from leaves(inner, root, (*path, KEYS.get(path[-1], "name")))
        elif "type" in option or "enum" in option or "const" in option:
            yield path, option


def wrong_values(option: Schema) -> Iterator[Any]:
    kind = option.get("type")
    if "enum" in option or "const" in option or "pattern" in option:
        yield "@wrong value@"
    elif kind in ("array", "object", "string"):
        yield 8.125 if kind != "string" else {"@wrong@": 1}
    else:
        yield "@wrong@"
    if "maximum" in option or "exclusiveMaximum" in option:
        yield 10**15
    if "minimum" in option or "exclusiveMinimum" in option:
        yield -(10**15)
    if "maxLength" in option:
        yield "@" * (option["maxLength"] + 1)


def wrong_fields(root: Schema) -> Iterator[tuple[tuple[str, ...], Any]]:
    found = [*leaves(root, root)]
    texts = {path for path, option in found if option.get("type") == "string" and "pattern" not in
             option and "enum" not in option}  # fmt: skip
    for path, option in found:
        for value in wrong_values(option):
            if path not in texts or isinstance(value, dict | list):  # else some text is valid
                yield path, value


ROOT = Recipe.model_json_schema()
RECIPES = [(LAPTOP, path, value) for path, value in wrong_fields(ROOT)]
for file in (LAPTOP, CHECKOUT / "recipes/flights.yaml", CHECKOUT / "recipes/images.yaml"):
    settings = load_spec(
        yaml.safe_load(file.read_text(encoding="utf-8"))["workload"]["name"]
    ).config
    RECIPES += [
        (file, ("workload", "config", *path), value)
        for path, value in wrong_fields(settings.model_json_schema())
    ]


Case = tuple[Path, tuple[str, ...], Any]


def together() -> list[list[Case]]:
    """Groups of wrong fields that do not touch each other: a recipe is read once a group."""
    groups: list[list[Case]] = []
    for case in RECIPES:
        free = (group for group in groups if not any(touching(case, one) for one in group))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append(case)
    return groups


def touching(one: Case, other: Case) -> bool:
    """Whether one field holds the other, or makes its section a list."""
    differs = next(((a, b) for a, b in zip(one[1], other[1], strict=False) if a != b), None)
    return one[0] != other[0] or not differs or differs[0].isdigit() != differs[1].isdigit()


def put(node: Any, path: tuple[str, ...], value: Any, root: Schema = ROOT) -> None:
    """Write the value there, with the sections around it valid as far as their examples are."""
    place = root
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        options = _list_options(place, root)
        inner = next(
            (o["properties"][part] for o in options if part in o.get("properties", {})),
            next((o.get("items") or o.get("additionalProperties") or {} for o in options
                  if o.get("type") in ("array", "object")), {}),
        )  # fmt: skip
        following = path[depth + 1] if not last else ""
        empty: Any = [] if following.isdigit() else {}
        if not last and (given := make_example(inner, root)) and isinstance(given, type(empty)):
            empty = deepcopy(given)
        new = value if last else empty
        if isinstance(node, list):
            at = int(part)
            node += [None] * (at + 1 - len(node))
            if last or not isinstance(node[at], type(empty)):
                node[at] = new
            node = node[at]
        else:
            if last or not isinstance(node.get(part), type(empty)):
                node[part] = new
            node = node[part]
            if not last and [*node] == ["name"] != [following] and "properties" not in inner:
                node.clear()  # the example of a mapping
        place = inner


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


def problems(path: Path) -> list[Problem]:
    with pytest.raises(RecipeProblems) as refused:
        load_recipe(path)
    return [*refused.value.problems]


@pytest.mark.parametrize("group", together(), ids=lambda group: ".".join(group[0][1]))
def test_a_wrong_value_of_any_field(folder: Path, group: list[Case]):
    tree = yaml.safe_load(group[0][0].read_text(encoding="utf-8"))
    settings = load_spec(tree["workload"]["name"]).config.model_json_schema()
    for _, field, value in group:
        if field[2:] and field[:2] == ("workload", "config"):
            put(tree["workload"]["config"], field[2:], value, settings)
        else:
            put(tree, field, value)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False, width=10**6), encoding="utf-8")
    lines, told = path.read_text(encoding="utf-8").splitlines(), problems(path)
    for _, field, value in group:
        found = [one for one in told if one.field == ".".join(field)]
        assert len(found) == 1, (field, [str(one) for one in told])
        (one,) = found
        file, _, line = one.origin.rpartition(":")
        assert file == str(path)
        written = lines[int(line) - 1]
        assert re.match(rf"\s*(- )*({field[-1]}:|-? ?)", written), written
        assert isinstance(value, dict) or as_yaml(value)[:100] in written
        assert repr(value)[:100] in one.text
        assert re.search("expected .*(such as|like|one of|true or false|section|list|nearest|text|"
                         "map)", one.text)  # fmt: skip
        assert not [sign for sign in REGEX if sign in one.text]


def test_every_shipped_workload_is_among_them():
    walked = {yaml.safe_load(path.read_text(encoding="utf-8"))["workload"]["name"]
              for path, *_ in RECIPES}  # fmt: skip
    assert walked == {*list_workloads()}


def load_text(folder: Path, *replaced: tuple[str, str], also: str = "") -> list[Problem]:
    text = LAPTOP.read_text(encoding="utf-8")
    for before, after in replaced:
        assert before in text
        text = text.replace(before, after)
    path = folder / "recipe.yaml"
    path.write_text(text + also, encoding="utf-8")
    return problems(path)


@pytest.mark.parametrize(
    ("field", "value", "near"),
    [
        ("train.instance_type", "m5.large", "ml.m5.large"),
        ("train.instance_type", "ML.M5.Large", "ml.m5.large"),
        ("aws.role", "my-role", "arn:aws:iam::111122223333:role/my-role"),
        ("data.input", "my-bucket/raw/text", "s3://my-bucket/raw/text"),
        ("aws.bucket", "s3://my-bucket/", "my-bucket"),
        ("aws.bucket", "My_Bucket", "my-bucket"),
        ("pipeline.name", "my pipeline_2", "my-pipeline-2"),
        ("images.python_version", 3.12, "py312"),
        ("images.pytorch_version", 2.8, "'2.8'"),
        ("cache.expire_after", "30D", "P30D"),
        ("train.loop.strategy", "fsdp2", "fsdp"),
        ("train.loop.max_steps", "1,000 steps", "1000"),
        ("train.instance_count", 0, "1"),
        ("train.instance_count", 1000, "256"),
    ],
)
def test_the_nearest_valid_value(folder: Path, field: str, value: Any, near: str):
    path = folder / "recipe.yaml"
    tree = yaml.safe_load(LAPTOP.read_text(encoding="utf-8"))
    put(tree, tuple(field.split(".")), value)
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert f"nearest valid value: {near}" in " ".join(one.text for one in problems(path))


def test_what_is_no_address_in_s3_is_not_made_one(folder: Path):
    for value in ("/data/raw", "./raw", "file:raw", "s3a://bucket/raw"):
        (one,) = load_text(folder, ("s3://trainyard-laptop/raw/python-stdlib", value))
        assert one.text.endswith("expected text like s3://my-bucket/folder")


@pytest.mark.parametrize(
    ("written", "field", "text"),
    [
        ("    batch_size: 16", "train.loop.batch_size", "it is called global_batch here"),
        ("    num_train_epochs: 3", "train.loop.num_train_epochs",
         "it is called max_steps here: it counts optimizer steps, epochs"),
        ("    gradient_accumulation_steps: 4", "train.loop.gradient_accumulation_steps",
         "global_batch / (micro_batch × data-parallel ranks)"),
        ("  max_steps: 3", "train.max_steps", "write train.loop.max_steps"),
        ("  epochs: 3", "train.epochs", "write train.loop.max_steps: it counts optimizer steps"),
        ("    qqqqqqq: 3", "train.loop.qqqqqqq", " valid names: "),
    ],
)  # fmt: skip
def test_an_unknown_name_is_told_what_it_is_called_here(
    folder: Path, written: str, field: str, text: str
):
    (one,) = load_text(folder, ("  loop:\n", f"  loop:\n{written}\n") if written[2] == " " else
                       ("train:\n", f"train:\n{written}\n"))  # fmt: skip
    assert (one.field, text in one.text) == (field, True), one.text
    assert one.text.count(",") <= 5  # noqa: PLR2004


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        ("global_batch: 16 ", "batch_size: 16", "called global_batch here, which is missing"),
        ("global_batch: 16 ", "samples: 16", "expected global_batch, which is missing"),
        ("max_steps: 300 ", "max_stpes: 300", "nearest valid name: max_steps, which is missing"),
    ],
)
def test_an_unknown_name_in_the_place_of_a_missing_one_is_one_problem(
    folder: Path, name: str, field: str, text: str
):
    (one,) = load_text(folder, (name, f"{field} "))
    wanted = f"train.loop.{field.partition(':')[0]}"
    assert (one.field, text in one.text) == (wanted, True), one.text


def test_a_missing_field_is_named_at_its_section_with_an_example(folder: Path):
    (one,) = load_text(folder, ("    global_batch: 16      # samples a step, over all ranks\n", ""))
    assert one.text == "is missing; add it, such as global_batch: 16"
    lines = (folder / "recipe.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[int(one.origin.rpartition(":")[2]) - 1] == "  loop:"


@pytest.mark.parametrize("name", Recipe.model_json_schema()["required"])
def test_a_recipe_can_have_the_example_of_a_missing_section(folder: Path, name: str):
    tree = yaml.safe_load(LAPTOP.read_text(encoding="utf-8"))
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({key: tree[key] for key in tree if key != name}))
    (one,) = (each for each in problems(path) if each.field == name)
    path.write_text(path.read_text() + one.text.partition("such as ")[2] + "\n")
    try:
        load_recipe(path)
    except RecipeProblems as refused:
        assert not [each for each in refused.problems if each.field.partition(".")[0] == name]


def test_everything_is_named_at_once_in_the_order_of_its_lines(folder: Path):
    found = load_text(
        folder,
        ("region: us-east-1", "region: us-esat-1"),
        ("arn:aws:iam::123456789012:role/trainyard ", "trainyard "),
        ("layers: 3", "layrs: 3"),
        (
            "instance_type: ml.m5.large\n  instance_count: 2\n  max",
            "instance_type: m5.large\n  max",
        ),
        ("global_batch: 16 ", "batch_size: 16 "),
        ("learning_rate: 0.005", "learning_rate: 500"),
        ("warmup_steps: 20", "warmup_steps: 2000"),
        ("max_bits_per_byte: 2.8", "max_bits_per_byte: -2.8"),
        ("below_baseline: bigram", "below_baseline: bigrma"),
        ("validation_share: 0.02\n  test_share: 0.02", "validation_share: 0.4\n  test_share: 0.45"),
    )
    assert [one.field for one in found] == [
        *("aws.region", "aws.role", "workload.config.layrs", "shard", "train.instance_type"),
        *("train.loop.batch_size", "train.loop.learning_rate", "train.loop.warmup_steps"),
        *("gate.max_bits_per_byte", "gate.below_baseline"),
    ]
    assert "nearest valid name: us-east-1" in found[0].text
    # that neither loop nor script is there follows from the wrong name
    (one,) = load_text(folder, ("  loop:", "  lop:"))
    assert "nearest valid name: loop" in one.text


def test_the_place_of_a_field_that_is_written_elsewhere(folder: Path):
    base = folder / "base.yaml"
    text = LAPTOP.read_text(encoding="utf-8").replace("layers: 3", "layers: no")
    base.write_text(text, encoding="utf-8")
    over = folder / "over.yaml"
    over.write_text("""\
extends: base.yaml
shard: {volume_gb: no}
environments:
  dev:
    aws: {prefix: a b}
  prod:
    gate:
      min_groups: no
""", encoding="utf-8")  # fmt: skip
    with pytest.raises(RecipeProblems) as refused:
        load_recipe(over, ["evaluate.volume_gb=no", "train.instance_count=2"], "dev")
    layers = 1 + base.read_text(encoding="utf-8").splitlines().index("    layers: no")
    found = {one.field: one.origin for one in refused.value.problems}
    assert found == {"workload.config.layers": f"{base}:{layers}", "shard.volume_gb": f"{over}:2",
                     "environments.dev.aws.prefix": f"{over}:5",
                     "environments.prod.gate.min_groups": f"{over}:8",
                     "evaluate.volume_gb": "--set"}  # fmt: skip
