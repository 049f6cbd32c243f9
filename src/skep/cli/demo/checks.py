"""The checks at the end of the story. They are plain functions of figures, so that tests can pass wrong figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class GroupAccount(Protocol):
    """A group's account, from the server's answer."""

    queue: str
    consumer_group: str
    pushed: int
    completed: int
    pending: int
    in_flight: int
    dead: int
    expired: int


class StoryCheck(Struct, frozen=True):
    """A check: its name, whether it held, and the figures."""

    name: str
    held: bool
    figures: str


def line(check: StoryCheck) -> str:
    """A check as it is shown."""
    return f"{'ok    ' if check.held else 'FAILED'}  {check.name}: {check.figures}"


class StoryFigures(Struct, kw_only=True):
    """The figures that the story collects on its way."""

    duplicates_sent: int = 0
    duplicates_answered: int = 0
    crashed: int = 0
    taken_over: int = 0
    stale_acks: int = 0
    died: int = 0
    replayed: int = 0
    dead_left: int = 0


def account_check(one: GroupAccount) -> StoryCheck:
    """Whether the account of one group adds up (I12)."""
    held = one.pushed == one.completed + one.pending + one.in_flight + one.dead + one.expired
    figures = f"{one.pushed} = {one.completed} + {one.pending} + {one.in_flight} + {one.dead} + {one.expired}"
    return StoryCheck(f"{one.queue}/{one.consumer_group} adds up (I12)", held, figures)


def idle_check(accounts: Sequence[GroupAccount]) -> StoryCheck:
    """Every pushed message is settled."""
    left = sum(account.pending + account.in_flight for account in accounts)
    return StoryCheck("nothing is left to do", left == 0, f"{left} left")


def orders_check(placed: Sequence[int], shipped: Sequence[int], refused: Sequence[int]) -> StoryCheck:
    """Every order that was placed is shipped or refused, once, and nothing else is."""
    wrong = Counter([*shipped, *refused])
    wrong.subtract(placed)
    odd = sorted(number for number, count in wrong.items() if count)
    figures = f"{len(placed)} = {len(shipped)} + {len(refused)}"
    if odd:
        figures += f", wrong: {', '.join(map(str, odd[:5]))}{' …' if len(odd) > 5 else ''}"
    return StoryCheck("placed = shipped + refused, every order once", not odd, figures)


def mishap_checks(seen: StoryFigures, poison: int) -> list[StoryCheck]:
    """The mishaps of the story happened, and did no harm."""
    return [
        StoryCheck(
            "orders pushed again are answered as duplicates (I3)",
            seen.duplicates_answered == seen.duplicates_sent > 0,
            f"{seen.duplicates_answered} of {seen.duplicates_sent}",
        ),
        StoryCheck(
            "what the crashed worker held comes again (I9)",
            seen.taken_over == seen.crashed > 0,
            f"{seen.taken_over} of {seen.crashed}",
        ),
        StoryCheck(
            "its late acks change nothing (I6)",
            seen.stale_acks == seen.crashed > 0,
            f"{seen.stale_acks} of {seen.crashed} refused",
        ),
        StoryCheck("poison dies after its last attempt (I10)", seen.died == poison, f"{seen.died} of {poison}"),
        StoryCheck(
            "replayed dead letters succeed after the fix",
            seen.replayed == seen.died and seen.dead_left == 0,
            f"{seen.replayed} replayed, {seen.dead_left} left",
        ),
    ]


def all_checks(
    accounts: Sequence[GroupAccount],
    placed: Sequence[int],
    shipped: Sequence[int],
    refused: Sequence[int],
    seen: StoryFigures,
    poison: int,
) -> list[StoryCheck]:
    """Everything that must hold."""
    return [
        orders_check(placed, shipped, refused),
        idle_check(accounts),
        *[account_check(account) for account in accounts],
        *mishap_checks(seen, poison),
    ]


def lake_check(logged: Mapping[str, int], kept: Mapping[str, int]) -> StoryCheck:
    """The lake has as many rows of every queue as its log has messages."""
    wrong = sorted(queue for queue in logged.keys() | kept.keys() if logged.get(queue, 0) != kept.get(queue, 0))
    figures = f"{sum(logged.values())} messages, {sum(kept.values())} rows"
    if wrong:
        figures += ", wrong: " + ", ".join(
            f"{queue} {logged.get(queue, 0)} and {kept.get(queue, 0)}" for queue in wrong
        )
    return StoryCheck("rows in the lake = messages in the logs", not wrong, figures)
