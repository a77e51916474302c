"""A script of SDK v2 is rewritten for v3: calls, imports, what remains."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.common.errors import DefinitionError
from trainyard.migration.rewriting import migrate_script


def migrate_fully(source: str) -> str:
    found = migrate_script(source)
    assert not found.remaining, found.remaining
    return found.code


def list_remaining_constructs(source: str) -> list[tuple[int, str]]:
    return [(one.line, one.construct) for one in migrate_script(source).remaining]


STEPS = "from sagemaker.workflow.steps import TrainingStep as Step, CacheConfig\nprint(Step)\n"
SESSION = "import sagemaker\n\ns = sagemaker.Session()\nr = sagemaker.get_execution_role()\n"
OUTPUT = "from sagemaker.processing import ProcessingOutput\no = ProcessingOutput(\n"
ESTIMATOR = (
    "from sagemaker.estimator import Estimator\n"
    "e = Estimator(image_uri='i', role='r', output_path='o')\n"
)
WARM = (
    "from sagemaker.tuner import WarmStartConfig, WarmStartTypes\n"
    "w = WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING, parents={'a'})\n"
)


def test_an_import_is_of_the_modules_of_v3_and_a_name_behind_a_module_is_imported_by_itself():
    new = "from sagemaker.mlops.workflow.steps import CacheConfig, TrainingStep as Step\n"
    assert migrate_fully(STEPS) == f"{new}print(Step)\n"
    new = "from sagemaker.core.helper.session_helper import Session, get_execution_role\n\n"
    assert migrate_fully(SESSION) == f"{new}s = Session()\nr = get_execution_role()\n"


MOVED = {
    "a name that the script has taken": (
        "import sagemaker\ns3 = 1\nsagemaker.s3.S3Uploader.upload('a', 'b')\n",
        "from sagemaker.core import s3 as sagemaker_s3",
        "sagemaker_s3.S3Uploader.upload('a', 'b')",
    ),
    "an argument's comment and one after the last": (
        f"{OUTPUT}    output_name='a',\n    source='/b',  # written here\n    # no more\n)\n",
        "local_path='/b',  # written here\n",
        "# no more",
    ),
    "a step that got the estimator gets what train returns": (
        f"{ESTIMATOR}from sagemaker.workflow.steps import TrainingStep\n"
        "s = TrainingStep(name='T', estimator=e, inputs={'a': uri})\n",
        "e.train(input_data_config=[InputData(channel_name='a', data_source=uri)])",
        "sagemaker_session=PipelineSession()",
    ),
    "a tuning that starts from others": (
        WARM,
        "warm_start_type=WarmStartTypes.TRANSFER_LEARNING.value",
        "ParentHyperParameterTuningJob(hyper_parameter_tuning_job_name='a')",
    ),
    "a number parameter as a hyperparameter is a text": (
        f"{ESTIMATOR}from sagemaker.workflow.parameters import ParameterInteger\n"
        "n = ParameterInteger(name='N')\n"
        "e.set_hyperparameters(\n    rounds=n,  # many\n    silent=True,\n)\n",
        '    rounds=n.to_string(),  # many\n    silent="True",\n',
    ),
}


@pytest.mark.parametrize(
    ("source", "new"), [(one[0], one[1:]) for one in MOVED.values()], ids=MOVED
)
def test_a_script_is_moved(source: str, new: tuple[str, ...]):
    assert all(part in migrate_fully(source) for part in new), migrate_fully(source)


UNPACKED = "from sagemaker.model import Model\nm = Model(**settings)\n"
CHECK = (
    "from sagemaker.workflow.check_job_config import CheckJobConfig\n"
    "limited = CheckJobConfig(role='r', max_runtime_in_seconds=60)\n"
    "c = CheckJobConfig(role='r')\n"
)
PIPELINE = "import os\nfrom sagemaker.pipeline import PipelineModel\nm = PipelineModel()\n"
METHOD = "class A:\n    def f(self):\n        self.e.fit(inputs={'a': 1})\n"


@pytest.mark.parametrize(
    ("source", "remaining"),
    [
        (UNPACKED, [(1, "import of sagemaker.model.Model"), (2, "Model")]),
        (PIPELINE, [(2, "import of sagemaker.pipeline.PipelineModel"), (3, "PipelineModel")]),
        (CHECK, [(3, "CheckJobConfig")]),
        (ESTIMATOR + METHOD, [(5, "self.e.fit")]),
    ],
    ids=["what is unpacked", "no counterpart", "a limit only v3 sets", "of self"],
)
def test_what_is_not_moved_is_named_with_its_line(source: str, remaining: list[tuple[int, str]]):
    assert list_remaining_constructs(source) == remaining
    assert source != UNPACKED or migrate_script(source).code == source


def test_no_argument_is_dropped_in_silence_and_a_function_as_a_step_is_moved_and_named():
    source = (
        "from sagemaker.estimator import Estimator\n"
        "e = Estimator(image_uri='i', role='r', output_path='o', rules=[1],\n"
        "    disable_profiler=True, max_run=60)\n"
    )
    found = migrate_script(source)
    assert [(one.line, one.construct) for one in found.remaining] == [(2, "rules=[1]")]
    assert [one.construct for one in found.without_loss] == ["disable_profiler=True"]
    assert "StoppingCondition(max_runtime_in_seconds=60)" in found.code
    found = migrate_script(
        "from sagemaker.workflow.function_step import step\n@step\ndef f(): ...\n"
    )
    assert found.code.startswith("from sagemaker.mlops.workflow.function_step import step\n")
    assert [one.line for one in found.remaining] == [1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("def:", "line 59: invalid syntax: def:"),
        ("steps = [\n  a,\n  b)", r"line 61: closing parenthesis '\)' .* '\[' on line 59: b\)"),
        ('x = """abc', "line 59: unterminated triple-quoted string literal"),
        ("if x:\n    a = 1\n   b = 2", "line 61: unindent does not match"),
        ("!pip install sagemaker", "line 59: invalid syntax: !pip install sagemaker"),
        ("x = '\0'\ndef:", "null bytes"),
    ],
)
def test_a_syntax_error_is_told_with_its_own_line(wrong: str, said: str):
    with pytest.raises(DefinitionError, match=said):
        migrate_script("x = 1\n" * 58 + f"{wrong}\ny = 2\n")


def test_a_script_without_the_sdk_is_unchanged():
    source = "import os\nx = [1, 2]  # two\nprint('sagemaker.Session')\ndef f(a):\n  return a\n"
    source += "s3.fit(inputs={'a': 1})\n"
    assert migrate_fully(source) == source and migrate_fully("") == ""


_V2 = [
    "from sagemaker.processing import ProcessingInput\n"
    "i = [ProcessingInput(source='s', destination='/d')]\n",
    "from sagemaker.inputs import TrainingInput\nfrom sagemaker.estimator import Estimator\n"
    "e = Estimator(image_uri='i', role=r)\na = e.fit({'x': TrainingInput('s3://b/x')})\n",
    "import sagemaker\nu = sagemaker.image_uris.retrieve('xgboost', 'us-east-1', '1.7-1')\n",
    "from sagemaker.model import Model\nm = Model(image_uri=u, model_data=d)\ns = m.create()\n",
    "from sagemaker.workflow.fail_step import FailStep\nf = FailStep(name='F')\n",
]


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(_V2), unique=True))
def test_moving_twice_changes_nothing_more(parts: list[str]):
    once = migrate_script("".join(parts)).code
    assert migrate_script(once).code == once
