"""Counters of several processes add up, and never fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.observe import tally
from skep.observe.metrics import OTHER, QUEUE_LABELS, Meter
from skep.observe.tally import ENDED, Tally, keep_of_ended

ROUTE = ("POST", "/api/v1/push", "push")


def meter(pushed: int, queue: str = "q", **limits: int) -> Meter:
    """Counters after so many pushes."""
    made = Meter(**limits)
    for _ in range(pushed):
        made.queue("t", queue).pushed += 1
        made.route(*ROUTE).answered(201, 0.002, waited=False)
    return made


def told(whole: Meter) -> tuple[int, int, int, float]:
    """Messages, requests, and what the histogram holds."""
    latency = whole.latencies["push"]
    return whole.total("pushed"), whole.route(*ROUTE).by_status[201], latency.count, round(latency.seconds, 6)


def test_counters_of_all_processes_add_up(tmp_path: Path) -> None:
    Tally(tmp_path, "b").note(meter(3))
    Tally(tmp_path, "c").note(meter(4, "other"))

    whole = Tally(tmp_path, "a").total(meter(2))

    assert told(whole) == (9, 9, 9, 0.018)
    assert whole.queue("t", "q").pushed == 5
    assert whole.queue("t", "other").pushed == 4
    assert set(whole.latencies) == {"poll", "push"}


def test_a_process_counts_itself_once(tmp_path: Path) -> None:
    tally, mine = Tally(tmp_path, "a"), meter(2)
    tally.note(mine)
    mine.queue("t", "q").pushed += 1

    assert tally.total(mine).total("pushed") == 3


def test_what_an_ended_process_counted_stays(tmp_path: Path) -> None:
    for name in ("b", "c"):
        Tally(tmp_path, name).note(meter(3))
        keep_of_ended(tmp_path, name, QUEUE_LABELS)

    assert told(Tally(tmp_path, "a").total(meter(1))) == (7, 7, 7, 0.014)
    assert [path.name for path in tmp_path.iterdir()] == [ENDED]


def test_a_file_that_was_moved_already_does_not_count_twice(tmp_path: Path) -> None:
    ended = Tally(tmp_path, "b")
    ended.note(meter(3))
    left = (tmp_path / "b").read_bytes()
    keep_of_ended(tmp_path, "b", QUEUE_LABELS)
    (tmp_path / "b").write_bytes(left)

    assert Tally(tmp_path, "a").total(meter(1)).total("pushed") == 4


def test_a_file_that_cannot_be_read_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff")

    assert Tally(tmp_path, "a").total(meter(1)).total("pushed") == 1


def test_the_number_of_queues_stays_bounded(tmp_path: Path) -> None:
    for number in range(5):
        Tally(tmp_path, f"b{number}").note(meter(1, f"q{number}"))

    whole = Tally(tmp_path, "a").total(meter(1, queue_labels=2))

    assert len(whole.queues) == 3
    assert whole.queues[OTHER, OTHER].pushed == 4
    assert whole.total("pushed") == 6


def test_queues_of_an_ended_process_keep_their_labels(tmp_path: Path) -> None:
    mine = Meter(QUEUE_LABELS + 1)
    for number in range(QUEUE_LABELS + 1):
        mine.queue("t", f"q{number}").pushed += 1
    Tally(tmp_path, "b").note(mine)

    keep_of_ended(tmp_path, "b", QUEUE_LABELS + 1)

    whole = Tally(tmp_path, "a").total(Meter(QUEUE_LABELS + 1))
    assert whole.queue("t", f"q{QUEUE_LABELS}").pushed == 1
    assert whole.queue(OTHER, OTHER).pushed == 0


def test_processes_that_end_while_the_files_are_read_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "c", "d"):
        Tally(tmp_path, name).note(meter(1))
    read = tally._read

    def ending_meanwhile(path: Path) -> tally.CounterNote:
        found = read(path)
        if path.name == "c":
            monkeypatch.undo()
            for name in ("b", "c", "d"):
                keep_of_ended(tmp_path, name, QUEUE_LABELS)
        return found

    monkeypatch.setattr(tally, "_read", ending_meanwhile)

    assert Tally(tmp_path, "a").total(Meter()).total("pushed") == 3
