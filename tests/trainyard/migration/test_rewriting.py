"""A script of SDK v2 is rewritten for v3: calls, imports, what remains."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.common.errors import DefinitionError
from trainyard.migration.rewriting import migrate


def moved(source: str) -> str:
    found = migrate(source)
    assert not found.remaining, found.remaining
    return found.code


def left(source: str) -> list[tuple[int, str]]:
    return [(one.line, one.construct) for one in migrate(source).remaining]


def test_an_import_is_of_the_modules_of_v3():
    source = "from sagemaker.workflow.steps import TrainingStep as Step, CacheConfig\nprint(Step)\n"
    new = "from sagemaker.mlops.workflow.steps import CacheConfig, TrainingStep as Step\n"
    assert moved(source) == f"{new}print(Step)\n"


def test_a_name_behind_a_module_is_imported_by_itself():
    source = "import sagemaker\n\ns = sagemaker.Session()\nr = sagemaker.get_execution_role()\n"
    new = "from sagemaker.core.helper.session_helper import Session, get_execution_role\n\n"
    assert moved(source) == f"{new}s = Session()\nr = get_execution_role()\n"


def test_a_name_that_the_script_has_taken_is_imported_under_another():
    source = "import sagemaker\ns3 = 1\nsagemaker.s3.S3Uploader.upload('a', 'b')\n"
    assert "from sagemaker.core import s3 as sagemaker_s3" in moved(source)
    assert "sagemaker_s3.S3Uploader.upload('a', 'b')" in moved(source)


def test_no_argument_is_dropped_in_silence():
    source = (
        "from sagemaker.estimator import Estimator\n"
        "e = Estimator(image_uri='i', role='r', output_path='o', rules=[1],\n"
        "    disable_profiler=True, max_run=60)\n"
    )
    found = migrate(source)
    assert [(one.line, one.construct) for one in found.remaining] == [(2, "rules=[1]")]
    assert [one.construct for one in found.without_loss] == ["disable_profiler=True"]
    assert "StoppingCondition(max_runtime_in_seconds=60)" in found.code


def test_what_is_unpacked_stays_and_is_named():
    source = "from sagemaker.model import Model\nm = Model(**settings)\n"
    assert left(source) == [(1, "import of sagemaker.model.Model"), (2, "Model")]
    assert migrate(source).code == source


def test_a_name_without_counterpart_is_named_with_its_line():
    source = "import os\nfrom sagemaker.pipeline import PipelineModel\nm = PipelineModel()\n"
    assert (2, "import of sagemaker.pipeline.PipelineModel") in left(source)


def test_a_check_whose_limit_only_v3_sets_is_named_with_its_line():
    source = (
        "from sagemaker.workflow.check_job_config import CheckJobConfig\n"
        "limited = CheckJobConfig(role='r', max_runtime_in_seconds=60)\n"
        "c = CheckJobConfig(role='r')\n"
    )
    assert left(source) == [(3, "CheckJobConfig")]


def test_a_comment_stays_with_its_argument():
    source = (
        "from sagemaker.processing import ProcessingOutput\n"
        "o = ProcessingOutput(\n"
        "    output_name='a',\n"
        "    source='/b',  # where it is written\n"
        ")\n"
    )
    assert "local_path='/b',  # where it is written\n" in moved(source)


def test_a_step_that_got_the_estimator_gets_what_train_returns():
    source = (
        "from sagemaker.estimator import Estimator\n"
        "from sagemaker.workflow.steps import TrainingStep\n"
        "e = Estimator(image_uri='i', role='r', output_path='o')\n"
        "s = TrainingStep(name='T', estimator=e, inputs={'a': uri})\n"
    )
    new = moved(source)
    assert "e.train(input_data_config=[InputData(channel_name='a', data_source=uri)])" in new
    assert "sagemaker_session=PipelineSession()" in new


def test_a_comment_after_the_last_argument_stays():
    source = (
        "from sagemaker.processing import ProcessingOutput\n"
        "o = ProcessingOutput(\n    output_name='a',\n    source='/b',\n    # no more\n)\n"
    )
    assert "# no more" in moved(source)


def test_an_estimator_of_self_that_is_not_followed_is_named():
    source = (
        "from sagemaker.estimator import Estimator\n"
        "e = Estimator(image_uri='i', role='r', output_path='o')\n"
        "class A:\n    def f(self):\n        self.e.fit(inputs={'a': 1})\n"
    )
    assert left(source) == [(5, "self.e.fit")]


def test_a_tuning_that_starts_from_others():
    source = (
        "from sagemaker.tuner import WarmStartConfig, WarmStartTypes\n"
        "w = WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING, parents={'a'})\n"
    )
    new = moved(source)
    assert "warm_start_type=WarmStartTypes.TRANSFER_LEARNING.value" in new
    assert "ParentHyperParameterTuningJob(hyper_parameter_tuning_job_name='a')" in new


def test_a_number_parameter_as_a_hyperparameter_is_a_text():
    source = (
        "from sagemaker.estimator import Estimator\n"
        "from sagemaker.workflow.parameters import ParameterInteger\n"
        "n = ParameterInteger(name='N')\n"
        "e = Estimator(image_uri='i', role='r', output_path='o')\n"
        "e.set_hyperparameters(\n    rounds=n,  # many\n    silent=True,\n)\n"
    )
    assert '    rounds=n.to_string(),  # many\n    silent="True",\n' in moved(source)


def test_a_function_as_a_step_is_moved_and_named():
    found = migrate("from sagemaker.workflow.function_step import step\n@step\ndef f(): ...\n")
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
        migrate("x = 1\n" * 58 + f"{wrong}\ny = 2\n")


_NO_SDK = [
    "import os\n",
    "x = [1, 2]  # two\n",
    "def f(a):\n  return a\n",
    "print('sagemaker.Session')\n",
    "s3.fit(inputs={'a': 1})\n",
]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(_NO_SDK)))
def test_a_script_without_the_sdk_is_unchanged(parts: list[str]):
    assert moved("".join(parts)) == "".join(parts)


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
    once = migrate("".join(parts)).code
    assert migrate(once).code == once
