"""A moved script compiles under SDK v3 to what the old one compiled to under v2.

data/small_v2.json is the definition that SDK v2.257 made of data/small_v2.py.
"""

import json
import time
from pathlib import Path

import pytest

from trainyard.common.errors import DefinitionError
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.equality.observed_run import Setting
from trainyard.equality.static_comparison import decide_equality
from trainyard.migration.rewriting import migrate_script
from trainyard.migration.signatures import ComparisonSettings, compile_script

DATA = Path(__file__).with_name("data")
OLD = DATA / "small_v2.py"
SIDES = ComparisonSettings(script=OLD, old_python=OWN_PYTHON, new_python=OWN_PYTHON)


@pytest.mark.slow
def test_the_definition_of_the_moved_script_does_the_same(tmp_path: Path):
    found = migrate_script(OLD.read_text())
    assert not found.remaining
    new = compile_script(found.code, OWN_PYTHON, SIDES, tmp_path / "new", time.time())
    old = json.loads((DATA / "small_v2.json").read_text())
    answer = decide_equality(old, new.definition, Setting({}), static=True)
    assert answer.verdict == "equal but for"
    assert set(answer.but_for) >= {"DebugHookConfig of Train", "ProfilerConfig of Train"}


@pytest.mark.slow
def test_a_script_that_fails_is_named_with_its_line(tmp_path: Path):
    with pytest.raises(DefinitionError, match="line 2: ZeroDivisionError"):
        compile_script("x = 1\nx / 0\n", OWN_PYTHON, SIDES, tmp_path / "new", time.time())


NAMED_BY_TIME = """
import datetime
import time
import uuid
from datetime import date
from sagemaker.core.common_utils import name_from_base
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.pipeline import Pipeline

time.sleep(0.01)
stamp = [time.time(), time.time_ns(), datetime.datetime.now(), datetime.datetime.utcnow(),
         date.today(), uuid.uuid4(), uuid.uuid1(), name_from_base("run"), time.strftime("%S")]
assert isinstance(datetime.datetime.now(), datetime.date)
assert uuid.uuid4() != uuid.uuid4()
Pipeline(name="P", steps=[FailStep(name="F", error_message=str(stamp))]).upsert()
"""


@pytest.mark.slow
def test_names_of_the_time_and_of_uuids_are_the_same_under_both(tmp_path: Path):
    moment = time.time()
    messages = []
    for name in ("one", "two"):
        made = compile_script(NAMED_BY_TIME, OWN_PYTHON, SIDES, tmp_path / name, moment)
        messages.append(made.definition["Steps"][0]["Arguments"]["ErrorMessage"])
    assert messages[0] == messages[1]
    assert str(int(moment)) in messages[0]


@pytest.mark.slow
def test_a_definition_that_sagemaker_would_refuse_is_named(tmp_path: Path):
    script = NAMED_BY_TIME.replace('FailStep(name="F"', 'FailStep(name="no name"')
    with pytest.raises(DefinitionError, match=r"small_v2.py creates under .*'no name'"):
        compile_script(script, OWN_PYTHON, SIDES, tmp_path / "new", time.time())
