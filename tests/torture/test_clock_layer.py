"""The layer that moves the clocks of a process while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from skep.errors import Code, SkepError
from torture.app import chosen_faults, left_out
from torture.faults import MENU
from torture.layers import CURE, Layer, can_compile, environment
from torture.layers.clock import CELLS, ProcessClock

NS = 1_000_000_000
HOUR = 3600 * NS

CHILD = """
import sys, threading, time

for line in sys.stdin:
    if line == "wait\\n":
        threading.Event().wait(0.01)  # until a point in time of the monotonic clock
    print(time.time_ns(), time.monotonic_ns(), flush=True)
"""


class Shown(NamedTuple):
    """What the clocks of a process show."""

    wall: int
    monotonic: int


class Watched:
    """A process that tells its time when it is asked."""

    def __init__(self, clock: ProcessClock) -> None:
        self.clock = clock
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env={**os.environ, **environment([clock.layer])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def show(self, how: str = "show") -> Shown:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()
        wall, monotonic = self.process.stdout.readline().split()
        return Shown(int(wall), int(monotonic))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    if not can_compile():
        pytest.skip(CURE)
    found = Watched(ProcessClock("child", tmp_path))
    try:
        yield found
    finally:
        found.process.communicate()


def test_a_clock_that_nobody_moves_is_the_machines(watched: Watched) -> None:
    before = Shown(*_now())
    shown = watched.show()

    assert before.wall <= shown.wall <= _now()[0]
    assert before.monotonic <= shown.monotonic <= _now()[1]
    watched.clock.layer.check()


def test_the_wall_clock_is_put_ahead_and_back_and_right_again(watched: Watched) -> None:
    first = watched.show()
    watched.clock.put(3600)
    ahead = watched.show()
    watched.clock.put(-7200)
    back = watched.show()
    watched.clock.set_right()
    right = watched.show()

    assert ahead.wall >= first.wall + HOUR
    assert back.wall <= _now()[0] - HOUR
    assert first.wall <= right.wall <= _now()[0]
    assert first.monotonic <= ahead.monotonic <= back.monotonic <= right.monotonic <= _now()[1]


def test_the_wall_clock_stands_still_and_goes_on_from_there(watched: Watched) -> None:
    watched.clock.drift(0.0)
    first, second = watched.show(), watched.show()
    watched.clock.drift(1.0)
    third, fourth = watched.show(), watched.show()

    assert first.wall == second.wall
    assert first.monotonic < second.monotonic
    assert second.wall <= third.wall < fourth.wall <= _now()[0]


def test_a_clock_that_drifts_goes_faster_than_the_monotonic_one(watched: Watched) -> None:
    watched.clock.drift(3.0)
    first, second = watched.show(), watched.show()

    assert second.wall - first.wall > 2 * (second.monotonic - first.monotonic) - NS // 1_000


def test_a_machine_that_slept_shows_both_clocks_ahead_and_threads_wait_as_long_as_they_mean_to(
    watched: Watched,
) -> None:
    first = watched.show()
    watched.clock.suspend(3600)
    woken = watched.show("wait")  # would take an hour by the kernel's clock
    watched.clock.set_right()

    assert woken.wall >= first.wall + HOUR
    assert HOUR <= woken.monotonic - first.monotonic < 2 * HOUR
    assert watched.show().wall >= first.wall + HOUR


@pytest.mark.skipif(not can_compile(), reason=CURE)
def test_a_layer_that_nobody_loaded_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no process has loaded the layer clock"):
        Layer("clock", "nobody", CELLS, tmp_path).check()


def test_a_machine_without_a_compiler_leaves_the_faults_of_layers_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "clock" in left_out("sqlite")
    assert not any(MENU[name].layers for name in chosen_faults("all", "sqlite"))
    with pytest.raises(SkepError) as refused:
        chosen_faults("kill,clock", "sqlite")
    assert refused.value.code is Code.INVALID_REQUEST
    assert "C compiler" in refused.value.message


def _now() -> tuple[int, int]:
    return time.time_ns(), time.monotonic_ns()
