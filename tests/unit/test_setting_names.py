"""Names that settings have in other queues: refused, with the name that they have here."""

from __future__ import annotations

import pytest

from skep.engine.settings import ELSEWHERE, parse_changes
from skep.errors import Code, SkepError
from skep.model import QueueSettings


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("max_queue_size", "max_depth"),
        ("dead_deadline", "max_age_seconds of the dead-letter queue"),
        ("retention_enabled", "retention_seconds"),
        ("lease_secnds", "lease_seconds"),
    ],
)
def test_a_setting_by_another_name_is_refused_with_ours(name: str, ours: str) -> None:
    with pytest.raises(SkepError) as refused:
        parse_changes({name: 1})

    assert refused.value.code is Code.INVALID_SETTING
    assert f"did you mean {ours}" in refused.value.message


def test_every_hint_names_a_setting_there_is() -> None:
    assert {hint.split()[0].rstrip(",") for hint in ELSEWHERE.values()} <= set(QueueSettings.__struct_fields__)
    assert not ELSEWHERE.keys() & set(QueueSettings.__struct_fields__)
