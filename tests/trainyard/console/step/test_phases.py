"""Where the time of a job went."""

from datetime import UTC, datetime, timedelta

from trainyard.console.step.phases import phases, shares

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_a_training_job_tells_its_phases():
    job = {
        "TrainingJobStatus": "InProgress",
        "SecondaryStatusTransitions": [
            {"Status": "Starting", "StartTime": at(0), "EndTime": at(1), "StatusMessage": "wait"},
            {"Status": "Downloading"},
            {"Status": "Training", "StartTime": at(1)},
        ],
    }
    found = phases(job, "TrainingJob")
    assert [(one.name, one.ended) for one in found] == [
        ("waiting for machines", at(1)),
        ("training", None),
    ]
    assert [(begin, long) for _, begin, long in shares(found, at(4))] == [(0, 0.25), (0.25, 0.75)]


def test_other_jobs_tell_when_they_began():
    job = {"ProcessingJobStatus": "Completed", "CreationTime": at(0), "ProcessingStartTime": at(2)}
    done = phases(job | {"ProcessingEndTime": at(8)}, "ProcessingJob")
    assert [(one.name, one.started, one.ended) for one in done] == [
        ("waiting for machines", at(0), at(2)),
        ("running", at(2), at(8)),
    ]
    waits = phases({"ProcessingJobStatus": "InProgress", "CreationTime": at(0)}, "ProcessingJob")
    assert [(one.name, one.ended) for one in waits] == [("waiting for machines", None)]
    assert phases({}, "TrainingJob") == [] and shares([], at(0)) == []
