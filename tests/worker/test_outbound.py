"""Outbound webhooks from the queue on: delivered once, retried, put off, and endpoints that rest or are stopped."""

from __future__ import annotations

import base64

import pytest
from standardwebhooks.webhooks import Webhook

import skep
from skep.clock import ManualClock
from skep.spec import load
from skep.spec.endpoint import endpoint_name
from skep.worker.endpoints import FAILURES, REST_SECONDS
from tests.worker.place import Place
from tests.worker.receiver import OK, Receiver, answer, receiver

SECRET = "whsec_" + base64.b64encode(b"a secret of ours, 24 long").decode()


def notices(place: Place, there: Receiver, host: str = "127.0.0.1") -> skep.App:
    return place.app(f"""
    app Notices {{
      queue Notices {{
        message_type {{
          to: string
          text: string
        }}
        delivery {{
          max_attempts: 10
          initial_backoff: 1s
          max_backoff: 1s
        }}
        concurrency: 1
        batch: 1
        deliver: "http://{host}:{there.port}/hook" {{
          secret_env: "NOTICE_SECRET"
          timeout: 5s
        }}
        then: queue Sent {{
          to: to
        }}
      }}
      queue Sent {{}}
    }}
    """)


ENVIRONMENT = {"NOTICE_SECRET": SECRET}


async def test_a_message_is_posted_as_it_is_with_its_id_and_a_signature(place: Place) -> None:
    async with receiver() as there:
        app = notices(place, there)
        pushed = place.client.push("Notices", {"to": "ann", "text": "hello"})
        assert await place.work(app, environment=ENVIRONMENT, at_least=1) == 1
    [got] = there.received
    assert Webhook(SECRET).verify(got.body, got.headers) == {"to": "ann", "text": "hello"}
    assert got.headers["webhook-id"] == pushed.messages[0].message_id
    assert place.payloads("Sent") == [{"to": "ann"}]
    assert place.depth("Notices") == 0


async def test_what_is_no_json_is_delivered_as_it_was_pushed(place: Place) -> None:
    async with receiver() as there:
        app = place.app(f'app Files {{ queue Files {{ deliver: "http://127.0.0.1:{there.port}/in" }} }}')
        place.client.push("Files", b"\x89PNG", content_type="image/png")
        assert await place.work(app, at_least=1) == 1
    [got] = there.received
    assert (got.body, got.headers["content-type"]) == (b"\x89PNG", "image/png")
    assert place.dead("Files") == []


async def test_a_refused_message_is_tried_again_under_the_same_id_and_dies_of_its_attempts(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    async with receiver() as there:
        app = notices(place, there)
        there.answers = [answer(422, "no such user")]
        place.client.push("Notices", {"to": "ann", "text": "hello"})
        for _ in range(10):
            assert await place.work(app, environment=ENVIRONMENT, at_least=1) == 1
            clock.advance(1.1)
        assert await place.work(app, environment=ENVIRONMENT) == 0
    assert len({got.headers["webhook-id"] for got in there.received}) == 1
    assert len(there.received) == 10
    [letter] = place.dead("Notices")
    assert letter.error == f"{endpoint_name(f'http://127.0.0.1:{there.port}/hook')} answered 422: no such user"
    assert letter.attempts == 10
    # The endpoint itself is well.
    assert list(place.client.endpoints()) == []


async def test_retry_after_is_when_it_is_tried_again(timed: tuple[Place, ManualClock]) -> None:
    place, clock = timed
    async with receiver() as there:
        app = notices(place, there)
        there.answers = [answer(429, retry_after="120"), OK]
        place.client.push("Notices", {"to": "ann", "text": "hello"})
        await place.work(app, at_least=1, environment=ENVIRONMENT)
        clock.advance(119)
        assert await place.work(app, environment=ENVIRONMENT) == 0
        clock.advance(1.1)
        assert await place.work(app, environment=ENVIRONMENT, at_least=1) == 1
    assert (len(there.received), place.depth("Notices")) == (2, 0)


async def test_an_endpoint_that_fails_rests_and_is_probed_by_one_message(timed: tuple[Place, ManualClock]) -> None:
    place, clock = timed
    async with receiver() as there:
        app = notices(place, there)
        there.answers = [*[answer(503)] * FAILURES, OK]
        for number in range(8):
            place.client.push("Notices", {"to": str(number), "text": "hello"}, partition=str(number))
        assert await place.work(app, environment=ENVIRONMENT, at_least=FAILURES) == FAILURES
        [known] = place.client.endpoints()
        assert (known.failures, known.open_until is not None) == (FAILURES, True)
        assert "answered 503" in (known.reason or "")
        # Another worker finds it resting, and leaves the messages where they are.
        clock.advance(REST_SECONDS - 1)
        assert await place.work(app, environment=ENVIRONMENT) == 0
        clock.advance(2)
        assert await place.work(app, environment=ENVIRONMENT, at_least=8) == 8
    assert len(there.received) == FAILURES + 8
    assert place.depth("Notices") == 0
    assert all(one.failures == 0 for one in place.client.endpoints())


async def test_one_message_at_a_time_probes_an_endpoint_and_its_failure_lets_it_rest_again(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    async with receiver() as there:
        app = notices(place, there)
        there.answers = [answer(503)]
        for number in range(20):
            place.client.push("Notices", {"to": str(number), "text": "hello"}, partition=str(number))
        assert await place.work(app, environment=ENVIRONMENT, at_least=FAILURES) == FAILURES
        for _ in range(3):
            clock.advance(REST_SECONDS + 1)
            assert await place.work(app, environment=ENVIRONMENT, at_least=1) == 1
    assert place.depth("Notices") == 20


async def test_an_endpoint_that_refuses_a_message_is_well_again(timed: tuple[Place, ManualClock]) -> None:
    place, clock = timed
    async with receiver() as there:
        app = notices(place, there)
        there.answers = [*[answer(503)] * FAILURES, answer(422), OK]
        for number in range(8):
            place.client.push("Notices", {"to": str(number), "text": "hello"}, partition=str(number))
        await place.work(app, at_least=FAILURES, environment=ENVIRONMENT)
        clock.advance(REST_SECONDS + 1)
        await place.work(app, at_least=8, environment=ENVIRONMENT)
    assert all(one.failures == 0 for one in place.client.endpoints())
    assert place.depth("Notices") == 1


async def test_neither_store_nor_api_nor_dead_letter_has_the_path_of_an_endpoint(
    timed: tuple[Place, ManualClock],
) -> None:
    place, _ = timed
    async with receiver() as there:
        app = place.app(f"""
        app Slack {{
          queue Notices {{
            delivery {{ max_attempts: 1 }}
            deliver: "http://127.0.0.1:{there.port}/services/s3cret"
          }}
        }}
        """)
        there.answers = [answer(410, "gone")]
        place.client.push("Notices", {"text": "hello"})
        assert await place.work(app, at_least=1) == 1
        [known] = place.client.endpoints()
        assert f"127.0.0.1:{there.port}" in known.url
        assert "s3cret" not in str(known)
        assert "s3cret" not in str(place.dead("Notices"))
        # It is found by its whole address, too, and a worker of another version may report it so.
        assert place.client.reset_endpoint(f"http://127.0.0.1:{there.port}/services/s3cret")
        reported = place.client.report_endpoint(f"http://127.0.0.1:{there.port}/services/s3cret", "failed")
        assert reported.url == known.url


async def test_410_stops_the_endpoint_until_it_is_reset_and_nothing_is_lost(timed: tuple[Place, ManualClock]) -> None:
    place, clock = timed
    async with receiver() as there:
        app = notices(place, there)
        there.answers = [answer(410, "moved away"), OK]
        place.client.push("Notices", [{"to": str(number), "text": "hello"} for number in range(3)])
        assert await place.work(app, environment=ENVIRONMENT, at_least=1) == 1
        clock.advance(3600)
        assert await place.work(app, environment=ENVIRONMENT) == 0
        [stopped] = place.client.endpoints()
        assert stopped.stopped_at is not None
        assert "answered 410: moved away" in (stopped.reason or "")
        assert (place.depth("Notices"), place.dead("Notices")) == (3, [])
        assert place.client.reset_endpoint(stopped.url)
        assert await place.work(app, environment=ENVIRONMENT, at_least=3) == 3
    assert [msg.json()["to"] for msg in place.client.pop("Sent", batch=10)] == ["0", "1", "2"]


async def test_a_public_name_that_points_inside_is_refused_and_told(timed: tuple[Place, ManualClock]) -> None:
    place, _ = timed

    async def inside(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with receiver() as there:
        app = notices(place, there, "hooks.example.com")
        place.client.push("Notices", {"to": "ann", "text": "hello"})
        await place.work(app, at_least=1, environment=ENVIRONMENT, allow_private=False, resolve=inside)
        assert there.received == []
        [known] = place.client.endpoints()
        assert "'hooks.example.com' is at 127.0.0.1, which is no public address" in (known.reason or "")
        assert place.depth("Notices") == 1


def test_a_missing_or_unusable_secret_keeps_the_worker_from_starting(place: Place) -> None:
    app = skep.App(
        load('app A { queue Q { deliver: "https://a.example/" { secret_env: "NOTICE_SECRET" } } }', "a.skep")
    )
    with pytest.raises(
        skep.SkepError, match="INVALID_SETTING: the environment has neither NOTICE_SECRET nor NOTICE_SECRET_FILE"
    ):
        place.working(app, environment={})
