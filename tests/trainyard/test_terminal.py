"""What command lines print where no terminal says how wide it is."""

TABLE = """
from rich.table import Table
from trainyard.terminal import console
table = Table("a" * 50, "b" * 60, box=None)
console.print(table)
"""


def test_an_arns_colons_are_no_pictures(run_python):
    printed = run_python("-c", "from trainyard.terminal import console; console.print('x:key:y')")
    assert printed.stdout == "x:key:y\n"


def test_a_table_in_a_log_cuts_no_name_short(run_python, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run_python("-c", TABLE).stdout.split() == ["a" * 50, "b" * 60]
