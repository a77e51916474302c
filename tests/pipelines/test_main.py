"""``python -m pipelines`` lists the verbs."""

from pipelines.__main__ import verbs


def test_alone_it_lists_every_verb_in_one_line(run_python):
    done = run_python("-m", "pipelines")
    listed = done.stdout.splitlines()[2:]
    assert [line.split()[0] for line in listed] == [*verbs()]
    assert {"definition", "plan", "upsert", "verify"} < {*verbs()} and "cli" not in verbs()
    assert all(line.endswith(".") and len(line) < 120 for line in listed), listed
