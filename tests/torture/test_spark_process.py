"""The processes of a Spark job, as faults look for them, and what its checkpoint tells of its batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture.spark_process import LOCAL, SparkProcess


@pytest.fixture
def job(tmp_path: Path) -> SparkProcess:
    """A job that was not started."""
    return SparkProcess("http://127.0.0.1:1", "streamed", "copies", tmp_path / "spark", master=LOCAL)


def begin(folder: Path, batch: int) -> None:
    note(folder, "offsets", batch)


def finish(folder: Path, batch: int) -> None:
    note(folder, "commits", batch)


def note(folder: Path, log: str, batch: int) -> None:
    place = folder / "spark" / "checkpoint" / log
    place.mkdir(parents=True, exist_ok=True)
    (place / str(batch)).touch()
    (place / f".{batch}.crc").touch()


def test_a_job_that_does_not_run_has_no_processes_to_end(job: SparkProcess) -> None:
    assert job.has_ended
    assert [*job.driver, *job.executors] == []  # and not our own
    job.end()


def test_a_job_is_in_a_batch_from_its_offsets_to_its_commit(job: SparkProcess, tmp_path: Path) -> None:
    begin(tmp_path, 0)
    seen = [job.is_in_a_batch]  # a batch of the start before, while the next start does not run yet
    (tmp_path / "spark" / "running").write_text(str(tmp_path / "work" / "app-1"), encoding="utf-8")
    seen.append(job.is_in_a_batch)
    finish(tmp_path, 0)
    seen.append(job.is_in_a_batch)
    for batch in (9, 10):
        begin(tmp_path, batch)
    finish(tmp_path, 9)
    seen.append(job.is_in_a_batch)

    assert seen == [False, True, False, True]


def test_a_job_has_gone_on_when_a_batch_was_done_since_the_hit(job: SparkProcess, tmp_path: Path) -> None:
    seen = [job.has_gone_on]
    finish(tmp_path, 0)
    seen.append(job.has_gone_on)
    job.hit()
    begin(tmp_path, 1)
    seen.append(job.has_gone_on)
    finish(tmp_path, 1)
    seen.append(job.has_gone_on)

    assert seen == [False, True, False, True]


def test_the_end_of_a_job_removes_the_files_of_its_executors_and_no_others(job: SparkProcess, tmp_path: Path) -> None:
    ours, other = tmp_path / "work" / "app-1", tmp_path / "work" / "app-2"
    for place in (ours, other):
        place.mkdir(parents=True)
        (place / "stderr").touch()
    (tmp_path / "spark" / "running").write_text(str(ours), encoding="utf-8")

    job.end()

    assert not ours.exists()
    assert other.exists()
    assert not job.is_running
