"""The settings of a queue: one table, from which everything else about them is derived.

A field of `QueueSettings` has the name, the type and the default of a setting; its `Setting` has the range, the texts and the
place in a spec. The checks of engine and spec, the columns of the stores, the flags of the command line, the form of the
dashboard, OpenAPI and the table of `docs/settings.md` read `SETTINGS`. `QueueChanges` and `QueueOptions` spell the same
names once more, for type checkers. CONTRIBUTING.md has the recipe for a new setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal, TypedDict, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

DURATION_SECONDS_MAX = 100 * 365 * 86_400
LEASE_SECONDS_MAX = 30 * 86_400
BACKOFF_MS_MAX = 30 * 86_400_000
PRIORITY_MIN, PRIORITY_MAX = -32_768, 32_767


class Ordering(StrEnum):
    """The order of messages: within each partition, in the whole queue as one partition, or none."""

    PER_KEY = "per_key"
    FIFO = "fifo"
    UNORDERED = "unordered"


class SettingKind(StrEnum):
    """The type of a setting's value. A name may be None."""

    NAME = "name"
    WHOLE = "whole"
    SECONDS = "seconds"
    SWITCH = "switch"
    ORDERING = "ordering"


class SpecBlock(StrEnum):
    """The place of a setting in a spec: in the queue itself, or in a block of the queue."""

    QUEUE = "queue"
    RETENTION = "retention"
    DELIVERY = "delivery"


class Setting(Struct, frozen=True, kw_only=True):
    """The description of a setting. ``name``, ``kind`` and ``default`` are taken from its field."""

    name: str = ""
    kind: SettingKind = SettingKind.NAME
    default: object = None
    help: str
    """The effect of the setting, for users."""
    zero: str = ""
    """The meaning of 0, where 0 is not an amount."""
    detail: str = ""
    """Further text for `docs/settings.md`, in Markdown."""
    change_when: str
    """A reason to change the setting, with a value, in Markdown."""
    block: SpecBlock | None = SpecBlock.QUEUE
    """None when a spec cannot set it."""
    least: int = 0
    most: int = DURATION_SECONDS_MAX
    above_zero: bool = False
    danger: str = ""
    """The possible loss: by a lower number, by switching it on, or by giving up a dead-letter queue. `skep spec plan` shows it."""
    danger_when_off: str = ""
    """The possible loss by switching it off."""

    @property
    def help_text(self) -> str:
        """The effect of the setting, and the meaning of 0."""
        return f"{self.help} 0: {self.zero}." if self.zero else self.help


class QueueSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a queue with their defaults. Zero means "no limit", "keep" or "off" where that makes sense."""

    namespace: Annotated[
        str | None,
        Setting(
            help="Groups queues: consumers can pop from all queues of a namespace.",
            detail="`pop_matching` finds the queue by it.",
            change_when="one worker serves all queues of `billing`",
        ),
    ] = None
    task: Annotated[
        str | None,
        Setting(
            help="Groups queues by kind of work, like namespace.",
            change_when="one worker does all `thumbnail` work of every namespace",
        ),
    ] = None
    priority: Annotated[
        int,
        Setting(
            help="A pop over several queues empties the queue with the higher number first.",
            change_when="`orders` must come before `newsletters`",
            least=PRIORITY_MIN,
            most=PRIORITY_MAX,
        ),
    ] = 0
    ordering: Annotated[
        Ordering,
        Setting(
            help="per_key: in order within each partition. fifo: the whole queue in order. unordered: no order.",
            detail="See [ordering](ordering-and-leases.md). It changes only while nothing is unsettled.",
            change_when="messages are independent: `unordered`",
            danger="the order of what waits changes; refused while anything is unsettled",
        ),
    ] = Ordering.PER_KEY
    lease_seconds: Annotated[
        float,
        Setting(
            help="How long a consumer may work on a message before it is redelivered (visibility timeout).",
            detail="A pop may ask for another time.",
            change_when="work takes 10 minutes: 1200; work takes 50 ms and crashes must show soon: 10",
            block=SpecBlock.DELIVERY,
            most=LEASE_SECONDS_MAX,
            above_zero=True,
        ),
    ] = 300.0
    max_attempts: Annotated[
        int,
        Setting(
            help="Deliveries before a message is dead-lettered.",
            zero="no limit",
            change_when="a remote service is flaky: 10",
            block=SpecBlock.DELIVERY,
            most=1_000_000,
        ),
    ] = 3
    initial_backoff_ms: Annotated[
        int,
        Setting(
            help="Wait after the first failed attempt. It doubles with each further failure.",
            change_when="a retry makes sense at once: 50",
            block=SpecBlock.DELIVERY,
            most=BACKOFF_MS_MAX,
        ),
    ] = 1000
    max_backoff_ms: Annotated[
        int,
        Setting(
            help="Longest wait between two attempts.",
            change_when="a partner is down for hours: 3600000, with more attempts",
            block=SpecBlock.DELIVERY,
            most=BACKOFF_MS_MAX,
        ),
    ] = 60_000
    dead_letter_queue: Annotated[
        str | None,
        Setting(
            help="Queue for messages that failed for good. Empty: NAME.dead. none: they are discarded.",
            change_when="several queues share one; or failures do not matter",
            block=SpecBlock.DELIVERY,
            danger="messages that are given up on are discarded",
        ),
    ] = None
    max_age_seconds: Annotated[
        float,
        Setting(
            help="An unsettled message older than this is dead-lettered as expired.",
            zero="off",
            detail="In a dead-letter queue every message older than this is deleted, whatever else is set.",
            change_when="stale messages need a person's eye",
            block=SpecBlock.RETENTION,
            danger="waiting messages older than this expire",
        ),
    ] = 0.0
    max_depth: Annotated[
        int,
        Setting(
            help="Most unsettled messages the queue accepts; more pushes get QUEUE_FULL.",
            zero="no limit",
            detail="Messages count that the slowest group has not settled, and scheduled ones.",
            change_when="producers must feel it when consumers are behind",
            block=SpecBlock.RETENTION,
            most=10**15,
            danger="pushes are refused while there are more messages than this",
        ),
    ] = 0
    retention_seconds: Annotated[
        float,
        Setting(
            help="Messages older than this are deleted once every group settled them.",
            zero="kept forever",
            change_when="the log should hold a week: 604800",
            block=SpecBlock.RETENTION,
            danger="messages older than this are deleted",
        ),
    ] = 0.0
    completed_retention_seconds: Annotated[
        float,
        Setting(
            help="Messages are deleted this long after every group settled them, whatever their age.",
            zero="off",
            change_when="the log is only a buffer: 60",
            block=SpecBlock.RETENTION,
            danger="settled messages older than this are deleted",
        ),
    ] = 0.0
    retention_ignores_groups: Annotated[
        bool,
        Setting(
            help="Retention also deletes messages that a group has not settled yet.",
            detail="They count as expired for the group.",
            change_when="a group that stands still must not fill the disk",
            block=SpecBlock.RETENTION,
            danger="messages are deleted though a group has not settled them",
        ),
    ] = False
    retention_requires_archive: Annotated[
        bool,
        Setting(
            help="Retention deletes only messages that an archive has reported as safe in its lake.",
            detail="It waits also while no archive has ever run. See [below](#retention-that-waits-for-the-archive).",
            change_when="the log keeps hours and the [lake](lake.md) everything, and nothing may be lost between them",
            block=SpecBlock.RETENTION,
            danger_when_off="messages are deleted though no archive has them",
        ),
    ] = False
    group_idle_seconds: Annotated[
        float,
        Setting(
            help="A group unused for this long no longer holds back retention and max_depth.",
            zero="never",
            detail="See [below](#groups-that-nobody-uses). Less than 120 counts as 120.",
            change_when="groups come and go, and nobody cleans up after them: 1209600 (two weeks)",
            block=SpecBlock.RETENTION,
            danger="messages are deleted though a group that nobody used for so long has not settled them",
        ),
    ] = 0.0
    delayed_processing_seconds: Annotated[
        float,
        Setting(
            help="A message is delivered this long after its push at the earliest.",
            change_when="an order may be cancelled for 5 minutes: 300",
            block=SpecBlock.DELIVERY,
        ),
    ] = 0.0
    window_buffer_seconds: Annotated[
        float,
        Setting(
            help="A partition rests this long after its newest message, so that bursts arrive as one batch.",
            detail="It rests ten times as long at most. `unordered` queues ignore it.",
            change_when="bursts of changes to one document should come as one batch",
            block=SpecBlock.DELIVERY,
        ),
    ] = 0.0
    max_wait_seconds: Annotated[
        float,
        Setting(
            help="An unsettled message older than this is skipped, without a dead letter.",
            zero="off",
            change_when="a position report is worthless after 30 s: 30",
            block=SpecBlock.RETENTION,
            danger="waiting messages older than this are skipped",
        ),
    ] = 0.0
    dedup_window_seconds: Annotated[
        float,
        Setting(
            help="How long a transaction id (idempotency key) makes a repeated push a duplicate.",
            change_when="producers may repeat a push days later: 604800",
            block=SpecBlock.DELIVERY,
            danger="repeats that come later are stored again",
        ),
    ] = 86_400.0
    dedup_across_partitions: Annotated[
        bool,
        Setting(
            help="A transaction id counts in the whole queue, not in its partition alone.",
            detail="SQS's FIFO queues do so.",
            change_when="producers may repeat a push with another partition",
            block=SpecBlock.DELIVERY,
            danger="a transaction id that two partitions use is stored once",
        ),
    ] = False
    paused: Annotated[
        bool,
        Setting(
            help="Pops get nothing; pushes and settlements go on.",
            detail="`pause_queue` and `resume_queue` set it.",
            change_when="a consumer has a fault and must stop eating messages",
        ),
    ] = False
    encryption_enabled: Annotated[
        bool,
        Setting(
            help="Payloads are encrypted before they are stored. The server needs a master key.",
            detail="See [encryption](encryption.md).",
            change_when="payloads must not be read by whoever gets hold of the database",
            block=None,
        ),
    ] = False


class QueueChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An update of settings: only the given settings change."""

    namespace: str | None | UnsetType = UNSET
    task: str | None | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    ordering: Ordering | UnsetType = UNSET
    lease_seconds: float | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    initial_backoff_ms: int | UnsetType = UNSET
    max_backoff_ms: int | UnsetType = UNSET
    dead_letter_queue: str | None | UnsetType = UNSET
    max_age_seconds: float | UnsetType = UNSET
    max_depth: int | UnsetType = UNSET
    retention_seconds: float | UnsetType = UNSET
    completed_retention_seconds: float | UnsetType = UNSET
    retention_ignores_groups: bool | UnsetType = UNSET
    retention_requires_archive: bool | UnsetType = UNSET
    group_idle_seconds: float | UnsetType = UNSET
    delayed_processing_seconds: float | UnsetType = UNSET
    window_buffer_seconds: float | UnsetType = UNSET
    max_wait_seconds: float | UnsetType = UNSET
    dedup_window_seconds: float | UnsetType = UNSET
    dedup_across_partitions: bool | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    encryption_enabled: bool | UnsetType = UNSET

    def given(self) -> dict[str, object]:
        """The given settings, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}

    def apply(self, settings: QueueSettings) -> QueueSettings:
        """The settings after these changes."""
        return msgspec.structs.replace(settings, **self.given())


class QueueOptions(TypedDict, total=False):
    """Settings of a queue as keyword arguments. A missing one stays as it is; a new queue gets the default."""

    namespace: str | None
    task: str | None
    priority: int
    ordering: Ordering | Literal["per_key", "fifo", "unordered"]
    lease_seconds: float
    max_attempts: int
    initial_backoff_ms: int
    max_backoff_ms: int
    dead_letter_queue: str | None
    max_age_seconds: float
    max_depth: int
    retention_seconds: float
    completed_retention_seconds: float
    retention_ignores_groups: bool
    retention_requires_archive: bool
    group_idle_seconds: float
    delayed_processing_seconds: float
    window_buffer_seconds: float
    max_wait_seconds: float
    dedup_window_seconds: float
    dedup_across_partitions: bool
    paused: bool
    encryption_enabled: bool


_KINDS: dict[object, SettingKind] = {
    str | None: SettingKind.NAME, int: SettingKind.WHOLE, float: SettingKind.SECONDS, bool: SettingKind.SWITCH, Ordering: SettingKind.ORDERING,
}  # fmt: skip


def _read_table() -> Mapping[str, Setting]:
    hints = get_type_hints(QueueSettings, include_extras=True)
    table = {}
    for field in msgspec.structs.fields(QueueSettings):
        [setting] = hints[field.name].__metadata__
        kind = _KINDS[hints[field.name].__origin__]
        table[field.name] = msgspec.structs.replace(setting, name=field.name, kind=kind, default=field.default)
    return MappingProxyType(table)


SETTINGS = _read_table()
"""Every setting by name, in display order."""


def settings_of(block: SpecBlock) -> tuple[str, ...]:
    """The settings in this place of a spec."""
    return tuple(setting.name for setting in SETTINGS.values() if setting.block is block)
