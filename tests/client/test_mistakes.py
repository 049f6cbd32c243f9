"""What people get wrong with the client: each is told in their own words, where they did it, and with the cure."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

import skep
from skep.client.failures import ClosedError
from skep.clock import ManualClock
from skep.wire.times import to_datetime


@pytest.mark.parametrize("name", ["skep", *(f"skep.{name}" for name in skep.__all__)])
def test_help_has_a_page_for_everything_that_skep_offers(name: str) -> None:
    assert name.rpartition(".")[2] in pydoc.plain(pydoc.render_doc(name))


@pytest.mark.parametrize("word", ["ack", "nack", "reject", "renew"])
def test_a_list_of_messages_is_refused_with_what_to_write_instead(skep_client: skep.Client, word: str) -> None:
    skep_client.push("orders", [1, 2])
    messages = skep_client.pop("orders", batch=2)

    with pytest.raises(skep.SkepError, match=r"INVALID_REQUEST: a popped message is wanted, not a list: .*\*messages"):
        getattr(skep_client, word)(messages)
    with pytest.raises(skep.SkepError, match=r"\*messages"), skep_client.transaction() as tx:
        tx.ack(messages)  # type: ignore[arg-type]


@pytest.mark.parametrize("delay", [3600, timedelta(hours=1)])
def test_a_nack_takes_its_delay_as_a_push_does(
    skep_client: skep.Client, skep_clock: ManualClock, delay: float | timedelta
) -> None:
    skep_client.push("orders", 1)
    skep_client.pop("orders")[0].nack(delay=delay)
    skep_clock.advance(3599)
    assert skep_client.pop("orders") == []

    skep_clock.advance(1)

    assert skep_client.pop("orders")[0].attempt == 2


def test_a_function_may_say_its_delay_as_a_timedelta(skep_client: skep.Client, skep_clock: ManualClock) -> None:
    worker = skep.Worker(skep_client)

    @worker.on("orders")
    def later(message: skep.Message) -> None:
        if message.attempt == 1:
            raise skep.Retry("later", delay=timedelta(hours=1))

    skep_client.push("orders", 1)
    assert worker.run(until_empty=True) == 1
    skep_clock.advance(3599)
    assert worker.run(until_empty=True) == 0
    skep_clock.advance(1)

    assert worker.run(until_empty=True) == 1


@pytest.mark.parametrize("time", ["tomorrow", datetime(2026, 1, 31, 12)])  # noqa: DTZ001 - it has no offset, that is the point
def test_a_retry_at_what_is_no_time_is_refused_by_its_value(time: Any) -> None:
    with pytest.raises(
        skep.SkepError, match="INVALID_TIME: a time is a datetime with its offset from UTC, not"
    ) as error:
        skep.RetryAt(time)

    assert repr(time) in str(error.value)


@pytest.mark.parametrize("app", ["shop.skep", 7])
def test_what_is_no_app_is_refused_with_how_to_load_one(skep_client: skep.Client, app: Any) -> None:
    with pytest.raises(skep.SkepError, match=r"INVALID_REQUEST: an app is wanted, not .*skep\.App\.load"):
        skep_client.apply(app)


def test_a_function_without_a_queue_is_refused_where_it_is_decorated(skep_client: skep.Client) -> None:
    def bill(order: dict[str, Any]) -> None:
        """Never called."""

    with pytest.raises(skep.SkepError, match=r'worker\.on takes the name of a queue first: @worker\.on\("orders"\)'):
        skep.Worker(skep_client).on(bill)  # type: ignore[arg-type]


def test_a_start_that_is_none_is_refused_by_the_word_that_was_used(skep_client: skep.Client) -> None:
    with pytest.raises(skep.SkepError, match="INVALID_REQUEST: 'start' is all, new, a time or a seq, not 'now'"):
        skep_client.pop("orders", start="now")  # type: ignore[arg-type]


def test_a_tenant_that_cannot_be_one_is_not_said_to_be_a_queue(skep_client: skep.Client) -> None:
    with pytest.raises(skep.SkepError, match="INVALID_NAME: The tenant name must have 1 to 255 characters"):
        skep_client.for_tenant("").push("orders", 1)


def test_a_payload_that_is_no_json_says_so(skep_client: skep.Client) -> None:
    skep_client.push("pictures", b"\xff\xd8", content_type="image/jpeg")

    with pytest.raises(skep.SkepError, match="INVALID_PAYLOAD: the payload is not JSON: "):
        skep_client.pop("pictures")[0].json()


def test_a_closed_client_says_that_it_is_closed_and_tries_nothing_again(skep_client: skep.Client) -> None:
    client = skep.Client(skep_client.settings.urls, attempts=5, backoff_seconds=3600)
    client.close()

    with pytest.raises(ClosedError, match="the client is closed; make another"):
        client.push("orders", 1)


def test_views_read_their_payloads_like_popped_messages(skep_client: skep.Client, skep_clock: ManualClock) -> None:
    order = {"total": 10, "to": "Zoë"}
    skep_client.push("orders", [order])
    skep_client.push("orders", order, deliver_at=to_datetime(skep_clock.now()) + timedelta(hours=1))
    skep_client.push("pictures", b"\xff\xd8", content_type="image/jpeg")
    skep_client.pop("orders")[0].reject()

    [message], [picture] = skep_client.messages("orders"), skep_client.messages("pictures")
    [scheduled], [letter] = skep_client.scheduled("orders"), skep_client.dead_letters("orders")
    [cut] = skep_client.messages("orders", preview=5)

    assert message.json() == scheduled.json() == letter.json() == order
    assert picture.content() == b"\xff\xd8"
    with pytest.raises(skep.SkepError, match="the payload is not JSON"):
        picture.json()
    with pytest.raises(skep.SkepError, match="only a part of the payload is here"):
        cut.json()


NOBODY_THERE = """
import sys, skep
{setup}
client = skep.Client("http://127.0.0.1:9", attempts=2, backoff_seconds=0.001)
try:
    client.push("orders", 1)
except skep.SkepError as error:
    print(error.code)
"""


@pytest.mark.parametrize(
    ("setup", "printed", "logged"),
    [
        ("", "SERVER_UNREACHABLE\n", "did not answer"),
        ("import stamina; stamina.instrumentation.set_on_retry_hooks([])", "SERVER_UNREACHABLE\n", ""),
        (
            "import structlog; structlog.configure(processors=[lambda _, __, event: event['event']])",
            "stamina.retry_scheduled\nSERVER_UNREACHABLE\n",
            "",
        ),
    ],
    ids=["by default", "without hooks", "with structlog"],
)
def test_standard_output_is_the_programs_own(setup: str, printed: str, logged: str) -> None:
    program = NOBODY_THERE.format(setup=setup)

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout == printed
    assert logged in run.stderr
    assert bool(run.stderr) is bool(logged)
