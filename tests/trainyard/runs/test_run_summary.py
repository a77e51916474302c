"""What is shown of a failing step's log."""

from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs.run_display import LAST_LINES, _select_hosts, select_last_job_lines

LAUNCHER_LINES = [
    "E1121 12:05:54.117000 74 torch/distributed/elastic/multiprocessing/api.py:1002] failed",
    "Traceback (most recent call last):",
    "Command failed with exit code 1. Traceback: Traceback (most recent call last):",
]
job_lines = st.lists(st.sampled_from(["step=1 loss=2", "error: too little data", ""]), max_size=40)


@given(job_lines)
def test_the_jobs_own_last_lines_are_kept_and_the_launchers_dropped(lines):
    assert (
        select_last_job_lines(lines + LAUNCHER_LINES)
        == select_last_job_lines(lines)
        == lines[-LAST_LINES:]
    )


def test_the_traceback_of_the_users_own_script_is_kept():
    own = ["Traceback (most recent call last):", "ValueError: mine"]
    assert select_last_job_lines(own + LAUNCHER_LINES) == own


def test_the_host_that_the_reason_names_is_shown_not_every_one_of_many():
    hosts = [f"algo-{n}" for n in range(1, 65)]
    assert _select_hosts(hosts, "algo-12 was killed by signal 9 (SIGKILL)") == ["algo-12"]
    assert len(_select_hosts(hosts, "ValueError: mine")) == 2
