"""The tab that all tests share is as good as new for each of them."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, Page

from skep.testing.server import RunningServer
from tests.browser.screen import PHONE, WIDE, forget, resize

SEEN = """() => [
    localStorage.a, sessionStorage.b, document.cookie, window.left, innerWidth,
    matchMedia("(prefers-color-scheme: dark)").matches,
]"""


def test_what_one_test_leaves_no_other_finds(tab: Page, context: BrowserContext, server: RunningServer) -> None:
    tab.goto(server.url)
    tab.evaluate("() => { localStorage.a = 1; sessionStorage.b = 2; document.cookie = 'c=3'; window.left = 4 }")
    with context.expect_page():
        tab.evaluate("() => { window.open('/queues') }")
    tab.emulate_media(color_scheme="dark")
    resize(tab, PHONE)
    assert tab.evaluate(SEEN) == ["1", "2", "c=3", 4, PHONE["width"], True]

    forget(tab, [server.url])

    assert context.pages == [tab]
    tab.goto(server.url)
    assert tab.evaluate(SEEN) == [None, None, "", None, WIDE["width"], False]
    forget(tab, [server.url])
