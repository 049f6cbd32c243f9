"""The checks of the demo notice figures that do not add up."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Struct

from skep.cli.demo import shop
from skep.cli.demo.checks import (
    StoryFigures,
    account_check,
    all_checks,
    idle_check,
    lake_check,
    mishap_checks,
    orders_check,
)


class Figures(Struct):
    """A group's account."""

    queue: str = "payments"
    consumer_group: str = "bank"
    pushed: int = 126
    completed: int = 120
    pending: int = 0
    in_flight: int = 0
    dead: int = 6
    expired: int = 0


WELL = StoryFigures(
    duplicates_sent=10, duplicates_answered=10, crashed=5, taken_over=5, stale_acks=5, died=6, replayed=6
)


def test_a_story_that_went_well_holds() -> None:
    found = all_checks([Figures()], [1, 2, 3], [1, 3], [2], WELL, 6)
    assert [check.name for check in found if not check.held] == []


@pytest.mark.parametrize("field", ["pushed", "completed", "pending", "in_flight", "dead", "expired"])
def test_I12_an_account_that_is_off_by_one_is_noticed(field: str) -> None:
    right = Figures()
    wrong = msgspec.structs.replace(right, **{field: getattr(right, field) + 1})
    assert account_check(right).held
    assert not account_check(wrong).held
    assert account_check(wrong).figures != account_check(right).figures


@pytest.mark.parametrize("left", [Figures(pushed=127, pending=1), Figures(pushed=127, in_flight=1)])
def test_work_that_is_left_is_noticed(left: Figures) -> None:
    assert idle_check([Figures()]).held
    assert not idle_check([Figures(), left]).held


@pytest.mark.parametrize(
    ("shipped", "refused", "odd"),
    [
        ([1], [2], "3"),  # one is lost
        ([1, 3, 3], [2], "3"),  # one is shipped twice
        ([1, 2, 3], [2], "2"),  # one is shipped and refused
        ([1, 3, 4], [2], "4"),  # one was never placed
        ([1, 1], [2], "1, 3"),  # the number is right, the orders are not
    ],
)
def test_an_order_that_is_not_there_exactly_once_is_named(shipped: list[int], refused: list[int], odd: str) -> None:
    check = orders_check([1, 2, 3], shipped, refused)
    assert not check.held
    assert check.figures.endswith(f"wrong: {odd}")


@pytest.mark.parametrize("field", ["duplicates_answered", "taken_over", "stale_acks", "died", "replayed", "dead_left"])
def test_a_mishap_that_did_harm_is_noticed(field: str) -> None:
    wrong = msgspec.structs.replace(WELL, **{field: getattr(WELL, field) + 1})
    assert all(check.held for check in mishap_checks(WELL, 6))
    assert not all(check.held for check in mishap_checks(wrong, 6))


def test_a_story_without_mishaps_shows_nothing() -> None:
    found = mishap_checks(StoryFigures(), 6)
    assert [check.held for check in found] == [False, False, False, False, True]


def test_the_story_is_the_same_every_time() -> None:
    orders = shop.placed_orders()
    assert orders == shop.placed_orders()
    assert [order.number for order in orders] == list(range(1, shop.ORDERS + 1))
    assert sum("," in order.amount for order in orders) == shop.POISON
    assert sum(order.card == "declined" for order in orders) == shop.DECLINED


def test_a_lake_with_other_rows_than_the_logs_have_is_noticed() -> None:
    assert lake_check({"orders": 2, "empty": 0}, {"orders": 2}).held
    for kept in ({"orders": 1}, {"orders": 3}, {"orders": 2, "other": 1}, {}):
        assert not lake_check({"orders": 2}, kept).held
