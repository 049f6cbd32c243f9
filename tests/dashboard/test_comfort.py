"""Comfort: what is worst comes first, what is text is readable, what is too long is had as a file, and colours can be read."""

from __future__ import annotations

import base64
import re
from importlib.resources import files

import pytest

from skep.clock import Instant, ManualClock
from skep.dashboard.payloads import is_text, one_line, shown
from skep.testing.server import running_server
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api

AA = 4.5
"""WCAG 2.2, 1.4.3: how much text and ground must differ."""
LONG = "order-" + "x" * 215


def test_the_group_that_is_furthest_behind_opens_first() -> None:
    clock = ManualClock(Instant(1_790_000_000_000_000))
    with running_server(clock=clock) as server:
        api = Api(server, "default")
        api.push("orders", *range(5))
        for group, done in (("a-quick", 5), ("m-slow", 1), ("z-middle", 3)):
            for message in api.pop("orders", done, f"&consumerGroup={group}"):
                api.ack(message)
            clock.advance(1)
        # the slow one is behind for as long as the middle one, and by more messages
        page = Visitor(server).open("/queues/orders")
        api.close()

    groups = page.html.partition(">Groups<")[2].partition("</table>")[0]
    assert re.search(r'<tr class="chosen">\s*<th scope="row"><a [^>]*>m-slow<', groups)
    assert groups.index("m-slow") < groups.index("z-middle") < groups.index("a-quick")


def test_a_queue_shows_what_waits_for_the_archive(api: Api, visitor: Visitor) -> None:
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"retention_requires_archive": True}})
    api.push("orders", 1, 2)
    assert "no archive has reported yet, the oldest is" in visitor.open("/queues/orders").html

    api.post("/api/v1/consumer-groups/lake/progress", {"queue": "orders", "seq": 2, "archived": True})

    page = visitor.open("/queues/orders")
    assert "Not archived 0" in page.text
    assert "archived to seq 2" in page.html
    assert ">archive</span>" in page.html


@pytest.mark.parametrize(
    ("content_type", "readable"),
    [
        ("application/xml", True),
        ("application/soap+xml; charset=utf-8", True),
        ("text/csv", True),
        ("application/problem+json", True),
        ("application/octet-stream", False),
        ("image/png", False),
        (None, True),
    ],
)
def test_what_people_can_read_is_text(content_type: str | None, readable: bool) -> None:
    assert is_text(content_type) is readable


def test_xml_is_shown_as_text_and_as_nothing_else(api: Api, visitor: Visitor) -> None:
    xml = b'<?xml version="1.0"?><order id="7"><script>alert(1)</script></order>'
    api.push("orders", base64.b64encode(xml).decode(), contentType="application/xml")

    page = visitor.open("/messages?q=queue:orders&seq=1")

    assert '<order id="7">' in page.text
    assert "<script>alert(1)" not in page.html
    assert shown(xml, "application/xml").text == xml.decode()
    assert one_line(xml, "application/xml").startswith("<?xml")


def test_a_payload_is_had_whole_as_a_file_that_no_browser_shows(api: Api, visitor: Visitor) -> None:
    page = b"<html><script>alert(1)</script>" + b"x" * 100_000
    api.push('a "queue"/', base64.b64encode(page).decode(), contentType="text/html")
    api.push("orders", {"n": "x" * 90_000})
    api.ack(api.pop("orders", 1)[0], "dlq", error="too long")

    asked = visitor.open("/messages", q='queue:"a \\"queue\\"/"', seq="1")
    link = next(one for one in asked.links if one.endswith("/payload"))
    whole = visitor.open(link)

    assert whole.status == 200
    assert whole.html == page.decode()
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"] == 'attachment; filename="a__queue__-1.bin"'
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in whole.headers["content-security-policy"]
    letter = next(one for one in visitor.open("/dead-letters/orders.dead/letters/1").links if one.endswith("/payload"))
    assert len(visitor.open(letter).html) > 90_000
    assert visitor.open("/messages/orders/99/payload").status == 404


def test_times_are_of_one_zone_and_say_which(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)

    page = visitor.open("/messages?q=queue:orders&seq=1")

    assert re.search(r'<time class="clock" datetime="[^"]+Z">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</time>', page.html)
    assert 'id="zone"' in page.html


def themes() -> dict[str, dict[str, str]]:
    """The colours of the style, light and dark, by their names."""
    style = (files("skep.dashboard") / "static/skep.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)

    def read(text: str) -> dict[str, str]:
        return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text.partition("* {")[0]))

    return {"light": read(light), "dark": {**read(light), **read(dark)}}


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "soft", "accent", "red", "amber", "green", "in", "out", "bad"])
def test_text_of_every_colour_can_be_read_on_every_ground(theme: str, ink: str) -> None:
    colours = themes()[theme]

    for ground in ("ground", "panel", "raised"):
        assert contrast(colours[ink], colours[ground]) >= AA, (theme, ink, ground)
    if ink in ("red", "amber", "green"):
        assert contrast(colours[ink], colours[f"{ink}-ground"]) >= AA


def test_the_measure_of_contrast_is_that_of_the_standard() -> None:
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
