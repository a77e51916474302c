"""What command lines print where no terminal says how wide it is."""

CODE = """
import os
del os.environ["COLUMNS"]
from rich.table import Table
from trainyard.terminal import console
console.print("x:key:y")
console.print(Table("a" * 50, "b" * 60, box=None))
"""


def test_a_log_has_an_arns_colons_and_whole_names(run_python):
    printed = run_python("-c", CODE)
    assert printed.stdout.split() == ["x:key:y", "a" * 50, "b" * 60]
