"""The environment that a job's container begins with."""

from emulator.runtime.node import PROCESSOR, base_environment


def test_a_job_runs_on_the_processor_that_this_process_is_held_to(monkeypatch) -> None:
    for name in PROCESSOR:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    environment = base_environment("us-east-1", 1)
    assert environment["ATEN_CPU_CAPABILITY"] == "avx2"
    assert not {*PROCESSOR[1:], "AWS_SECRET_ACCESS_KEY"} & environment.keys()
