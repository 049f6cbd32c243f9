"""Many processes on one PostgreSQL: what they saw together breaks no promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.model import PushStatus
from tests.support.load import GROUPS, SETTINGS, Load, run_load
from torture.check import check
from torture.history import History


def check_load(history: History) -> None:
    """No violation, everybody got everything, and the load was as bad as it was meant to be."""
    assert check(history) == []
    for queue in SETTINGS:
        stored = {p.result.seq for p in history.pushes if p.is_stored and p.result and p.message.queue == queue}
        for group in GROUPS:
            assert {g.delivery.seq for g in history.gives if g.group == (queue, group)} == stored
    assert any(p.result and p.result.status is PushStatus.DUPLICATE for p in history.pushes)
    assert any(g.delivery.attempt > 1 for g in history.gives)
    assert any(s.result and s.result.code is not None for s in history.settles)


def test_I3_I4_I5_I6_hold_over_eight_poppers_and_four_pushers(postgres_dsn: str, tmp_path: Path) -> None:
    check_load(run_load(Load(postgres_dsn, tmp_path, pushes=20)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_I3_I4_I5_I6_hold_for_longer(postgres_dsn: str, tmp_path: Path, seed: int) -> None:
    check_load(run_load(Load(postgres_dsn, tmp_path, pushes=250, seed=seed)))
