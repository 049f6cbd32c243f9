"""A plan says what applying would change, and marks what could lose something."""

from __future__ import annotations

import pytest

from skep.model import Ordering, QueueChanges, QueueSettings
from skep.spec import Action, App, load, plan, render_plan, settings_of
from skep.spec.ir import Idempotency, IdempotencySource
from skep.spec.ir import Queue as SpecQueue
from tests.spec.incidents import INCIDENTS

APP = load(INCIDENTS, "incidents.skep")


def test_what_is_not_there_is_made_dead_letter_queues_first() -> None:
    changes = plan(APP, {})
    assert [(change.action, change.queue) for change in changes] == [
        (Action.CREATE, "IncomingDead"), (Action.CREATE, "Incoming"),
    ]  # fmt: skip
    assert changes[0].settings == QueueChanges(max_age_seconds=604_800.0, dead_letter_queue="none", max_attempts=0)
    assert not any(change.destructive for change in changes)


def test_what_was_applied_needs_no_change() -> None:
    known = {change.queue: change.settings.apply(QueueSettings()) for change in plan(APP, {})}
    assert plan(APP, known) == []
    assert render_plan([]) == "nothing to change\n"


def test_only_what_the_spec_names_is_changed() -> None:
    known = {change.queue: change.settings.apply(QueueSettings()) for change in plan(APP, {})}
    known["Incoming"] = QueueChanges(paused=True, max_attempts=9, priority=3).apply(known["Incoming"])
    (change,) = plan(APP, known)
    assert change.settings == QueueChanges(max_attempts=5)
    assert [(one.setting, one.before, one.after) for one in change.changes] == [("max_attempts", 9, 5)]


@pytest.mark.parametrize(
    ("before", "after", "destructive"),
    [
        (QueueSettings(), QueueChanges(ordering=Ordering.FIFO), True),
        (QueueSettings(), QueueChanges(max_depth=10), True),
        (QueueSettings(max_depth=10), QueueChanges(max_depth=5), True),
        (QueueSettings(max_depth=10), QueueChanges(max_depth=20), False),
        (QueueSettings(max_depth=10), QueueChanges(max_depth=0), False),
        (QueueSettings(retention_seconds=60), QueueChanges(retention_seconds=30.0), True),
        (QueueSettings(retention_seconds=60), QueueChanges(retention_seconds=90.0), False),
        (QueueSettings(), QueueChanges(max_age_seconds=60.0), True),
        (QueueSettings(), QueueChanges(completed_retention_seconds=60.0), True),
        (QueueSettings(), QueueChanges(dedup_window_seconds=60.0), True),
        (QueueSettings(), QueueChanges(retention_ignores_groups=True), True),
        (QueueSettings(), QueueChanges(retention_requires_archive=True), False),
        (QueueSettings(retention_requires_archive=True), QueueChanges(retention_requires_archive=False), True),
        (QueueSettings(), QueueChanges(dead_letter_queue="none"), True),
        (QueueSettings(), QueueChanges(max_attempts=9, lease_seconds=5.0), False),
    ],
)
def test_what_could_lose_something_is_marked(before: QueueSettings, after: QueueChanges, destructive: bool) -> None:
    (change,) = plan(App(name="a", queues={"q": SpecQueue(settings=after)}), {"q": before})
    assert (change.action, change.destructive) == (Action.UPDATE, destructive)


def test_a_queue_that_is_not_in_the_spec_stays_and_is_told() -> None:
    known = dict.fromkeys(("old", "q", "q.dead"), QueueSettings())
    changes = plan(App(name="a", queues={"q": SpecQueue()}), known)
    assert [(change.action, change.queue) for change in changes] == [(Action.LEAVE, "old")]


def test_a_plan_can_be_read() -> None:
    app = App(
        name="a",
        queues={
            "new": SpecQueue(settings=QueueChanges(max_attempts=5)),
            "q": SpecQueue(settings=QueueChanges(max_depth=5)),
        },
    )
    assert render_plan(plan(app, {"q": QueueSettings(max_depth=9), "old": QueueSettings()})) == (
        "+ create new\n"
        "    max_attempts: 5\n"
        "! update q\n"
        "    max_depth: 9 → 5  ! pushes are refused while there are more messages than this\n"
        "  old is not in the spec and stays as it is\n"
    )


def test_the_window_of_repeats_is_the_queues() -> None:
    idempotency = Idempotency(source=IdempotencySource.KEY, value="message.id", window_seconds=60.0)
    assert (
        settings_of(App(name="a", queues={"q": SpecQueue(idempotency=idempotency)}), "q").dedup_window_seconds == 60.0
    )
