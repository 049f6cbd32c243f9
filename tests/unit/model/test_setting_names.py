"""Names that settings have in other queues: refused, with the name that they have here."""

from __future__ import annotations

import pytest

from skep.cli.app import run
from skep.engine.queue_settings import parse_changes
from skep.errors import Code, SkepError
from skep.model import QueueSettings
from skep.model.setting_names import ELSEWHERE
from skep.spec import SpecError, from_toml, load


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


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("max_queue_size: 5", "in the block retention: max_depth?"),
        ("retention { retry_limit: 5 }", "in the block delivery: max_attempts?"),
        ("delivery { max_depth: 5 }", "in the block retention: max_depth?"),
        ("delivery { priority: 5 }", "in the queue itself: priority?"),
        ("delivery { max_atempts: 5 }", "expected max_attempts?"),
    ],
)
def test_a_spec_with_another_queues_name_is_told_ours_and_its_block(said: str, meant: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(f"app Shop {{\n  queue Orders {{ {said} }}\n}}\n", "shop.skep")

    assert meant in str(refused.value)


def test_a_spec_in_toml_with_another_queues_name_is_told_ours() -> None:
    with pytest.raises(SpecError) as refused:
        from_toml('name = "Shop"\n[queues.Orders.settings]\nmax_queue_size = 5\nlease_secnds = 9\n')

    assert "there is no setting 'max_queue_size' (expected max_depth?)" in str(refused.value)
    assert "there is no setting 'lease_secnds' (expected lease_seconds?)" in str(refused.value)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--max-queue-size", "did you mean --max-depth?"),
        ("--dead-deadline", "did you mean --max-age-seconds of the dead-letter queue"),
        ("--retention-enabled", "did you mean --retention-seconds, which deletes"),
    ],
)
def test_an_option_with_another_queues_name_is_told_ours(
    option: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["queue", "create", "orders", option, "5"]) == 1

    assert meant in capsys.readouterr().err
