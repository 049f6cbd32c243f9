"""A test that would wait for ever fails instead, and says where it is."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress

import pytest

from tests.support import endless
from tests.support.endless import at_most


def test_a_thread_that_waits_for_ever_is_interrupted() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"did not end within 0\.05 s"), at_most(0.05):
        threading.Event().wait()


def test_a_loop_that_waits_for_ever_is_interrupted_and_names_what_its_tasks_wait_for() -> None:
    async def innermost() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await innermost()

    with pytest.raises(pytest.fail.Exception, match=r"outer .* > .*innermost .* > Event\.wait "), at_most(0.05):
        asyncio.run(outer())


def test_what_takes_the_interruption_for_its_own_error_is_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "AGAIN_SECONDS", 0.05)

    def wait_twice() -> None:
        with suppress(pytest.fail.Exception):
            threading.Event().wait()
        threading.Event().wait()

    with pytest.raises(pytest.fail.Exception), at_most(0.05):
        wait_twice()


def test_what_was_bound_before_is_bound_again_after_it() -> None:
    outer = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.getsignal(signal.SIGALRM)
    with at_most(5):
        pass

    assert (outer[0] > 0) == (signal.getitimer(signal.ITIMER_REAL)[0] > 0)
    assert signal.getsignal(signal.SIGALRM) is handler
