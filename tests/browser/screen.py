"""The dashboard in a tab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

from playwright.sync_api import Page, Response

PHONE = {"width": 390, "height": 800}
WIDE = {"width": 1280, "height": 860}


@contextmanager
def hearing(page: Page, event: str, hear: Callable[[Any], None]) -> Iterator[None]:
    """Be told of an event of the tab, for a while: the tab outlives a test."""
    page.on(event, hear)  # type: ignore[call-overload] # there is one for each name
    try:
        yield
    finally:
        page.remove_listener(event, hear)


def resize(page: Page, size: dict[str, int]) -> None:
    """Give the page a size. Its window is then minimized, so that the frame around the page, in which a wheel turns while it loads, is
    not drawn. The page does not notice: playwright lets it believe that it is seen and has the focus.
    """
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    session = page.context.new_cdp_session(page)
    window = session.send("Browser.getWindowForTarget")["windowId"]
    session.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "minimized"}})
    session.detach()


def forget(page: Page, origins: list[str]) -> None:
    """Let the next test find a browser that was never used, with one tab."""
    if page.url.startswith("http"):
        page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    storage = page.context.new_cdp_session(page)
    for origin in origins:
        storage.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    storage.detach()
    page.context.clear_cookies()
    for other in page.context.pages:
        if other is not page:
            other.close()
    page.emulate_media(color_scheme="light")
    resize(page, WIDE)


class Screen:
    """One tenant's dashboard."""

    def __init__(self, page: Page, url: str, tenant: str, folder: Path | None) -> None:
        self.page = page
        self._url = url
        self._tenant = tenant
        self._folder = folder

    def open(self, path: str, **query: object) -> Response:
        """Go to a page."""
        asked = urlencode({**({} if self._tenant == "default" else {"tenant": self._tenant}), **query})
        response = self.page.goto(f"{self._url}{path}?{asked}")
        assert response is not None
        return response

    def shoot(self, name: str) -> None:
        """Show the page dark and as on a phone, at once; if there is a folder, one after the other, with a screenshot of each."""
        shown: list[tuple[str, Literal["light", "dark"], dict[str, int]]] = [("dark", "dark", PHONE)]
        if self._folder is not None:
            shown = [("light", "light", WIDE), ("dark", "dark", WIDE), ("phone", "light", PHONE)]
        for scheme, colours, size in shown:
            self.page.emulate_media(color_scheme=colours)
            resize(self.page, size)
            if self._folder is not None:
                self.page.screenshot(path=self._folder / f"{name}-{scheme}.png", full_page=True)
        self.page.emulate_media(color_scheme="light")
        resize(self.page, WIDE)

    @property
    def text(self) -> str:
        """All that is seen of the content."""
        return self.page.locator("main").inner_text()
