"""Simulated runs of several servers: whatever the network does, no promise is broken, and a seed always gives the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.run import run

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 200
"""A processor does 1,100 runs a minute, and all mutants of tests/mutants/simulation.py fall within the first 200. More would only look for what is
not known: that is for `--all`, as the default suite has no half minute of two processors left."""
MORE_SEEDS = 16_000
"""Fourteen minutes of one processor: seven on two, or ten beside the other tests."""
PROCESSES = os.cpu_count() or 1


def check_seeds(seeds: range) -> None:
    """Every run of these seeds keeps every promise, in processes of their own, one for each core: what shows there shows there again."""
    each = -(-len(seeds) // PROCESSES)
    shares = [seeds[start : start + each] for start in range(0, len(seeds), each)]
    with ThreadPoolExecutor(len(shares)) as threads:
        for share, (command, runs) in zip(shares, threads.map(run_seeds, shares), strict=True):
            lines = [line for line in runs.stdout.splitlines() if line.startswith("seed ")]
            broken = [line for line in lines if not line.endswith(" 0 violations")]
            shown = f"{' '.join(command[1:])} shows it again:\n{runs.stdout[-2000:]}"
            assert (runs.returncode, broken, runs.stderr) == (0, [], ""), shown
            assert len(lines) == len(share)


def run_seeds(seeds: range) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    command = [sys.executable, "-W", "error", "-m", "tests.simulation", str(seeds.start), str(seeds.stop)]
    return command, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_I1_to_I15_hold_in_simulated_runs() -> None:
    check_seeds(range(SEEDS))


@pytest.mark.slow
def test_I1_to_I15_hold_in_many_simulated_runs() -> None:
    check_seeds(range(SEEDS, MORE_SEEDS))


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    here = "\n".join(run(seed).line for seed in range(3))

    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "0", "3"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert there.stdout.strip() == here


def test_other_seeds_give_other_runs() -> None:
    assert len({run(seed).trace for seed in range(3)}) == 3
