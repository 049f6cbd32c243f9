"""The dashboard in a tab."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from playwright.sync_api import Page, Response

PHONE = {"width": 390, "height": 800}
WIDE = {"width": 1280, "height": 860}


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
        """Show the page wide in both colours, and as on a phone; keep screenshots of it if there is a folder for them."""
        for scheme, size in (("light", WIDE), ("dark", WIDE), ("phone", PHONE)):
            colours: Literal["light", "dark"] = "dark" if scheme == "dark" else "light"
            self.page.emulate_media(color_scheme=colours)
            self.page.set_viewport_size({"width": size["width"], "height": size["height"]})
            if self._folder is not None:
                self.page.screenshot(path=self._folder / f"{name}-{scheme}.png", full_page=True)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": WIDE["width"], "height": WIDE["height"]})

    @property
    def text(self) -> str:
        """All that is seen of the content."""
        return self.page.locator("main").inner_text()
