"""`skep bench soak` runs, weighs the server at every tenth, and lets the store forget what went through."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "bench", "soak", "--json", "--messages"]


@pytest.mark.slow
def test_it_tells_the_memory_of_every_tenth() -> None:
    done = subprocess.run([*COMMAND, "20000"], capture_output=True, text=True, check=True, timeout=120)

    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    tenths = [value for name, value in report["rates"].items() if name.startswith("sqlite.memory_mib.tenth_")]
    assert len(tenths) == 10
    assert report["ratios"]["sqlite.memory_last_over_first"] == tenths[-1] / tenths[0]
    assert min(tenths) > report["rates"]["sqlite.idle_memory_mib"] / 2 > 0
