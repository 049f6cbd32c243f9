"""`dev/test.py`: a check that runs beside the tests says what it found, and does not outlive them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "dev" / "test.py"


@pytest.fixture
def beside() -> Any:
    return runpy.run_path(str(SCRIPT))["Beside"]


def test_a_check_that_passes_says_so(beside: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with beside("types", [sys.executable, "-c", "print('unheard')"]) as check:
        assert check.passes()
    assert capsys.readouterr().out == "== types ok\n"


def test_a_check_that_fails_is_told_with_what_it_said(beside: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with beside("types", [sys.executable, "-c", "import sys; print('line 3: wrong'); sys.exit(1)"]) as check:
        assert not check.passes()
    assert capsys.readouterr().out == "== types FAILED\nline 3: wrong\n\n"


def test_a_check_that_nobody_waits_for_ends_with_the_tests(beside: Any) -> None:
    with beside("types", [sys.executable, "-c", "import signal; signal.pause()"]) as check:
        running = check._process.pid
    assert not psutil.pid_exists(running)
