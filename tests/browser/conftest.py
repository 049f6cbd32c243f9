"""A real browser on a real server. Each test has a tenant of its own; what any page logs, or asks of another host, fails it.

Screenshots go to the folder that SKEP_SCREENSHOTS names. Without one, none is taken: nothing is compared with them.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    expect,
    sync_playwright,
)

from skep.clock import Instant, ManualClock
from skep.testing.server import RunningServer, running_server
from tests.browser.screen import WIDE, Screen, forget, hearing, resize
from tests.browser.traffic import an_hour
from tests.http.driver import Api

TENANTS = (f"shop-{number}" for number in itertools.count(1))
WAIT_MS = 20_000
"""How long a page may take to show something: only a busy machine needs it."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
UNUSED = (
    "SpareRendererForSitePerProcess", "PreloadTopChromeWebUI", "BackForwardCache", "PaintHolding", "Translate",
    "MediaRouter", "DialMediaRouteProvider", "GlobalMediaControls", "HttpsUpgrades", "LensOverlay", "OptimizationHints",
    "RenderDocument", "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
)  # fmt: skip
"""What a browser does besides for whoever sits before it. A process that is kept ready for the next page alone takes a fifth of the time,
and as much a new frame, with all that belongs to it, for each page of a tab (RenderDocument)."""
# Root has no sandbox for a browser; a small /dev/shm would end it.
# Names in .example mean this machine, as those of a page that was rebound do.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
    f"--disable-features={','.join(UNUSED)}",
]


def program() -> str | None:
    """The browser of this machine."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


# Not for the session: while playwright waits, no other event loop can run in this thread, and other tests have theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    found = program()
    if found is None:
        pytest.skip("NO BROWSER: the dashboard is not tested; apt-get install chromium")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server on an SQLite file."""
    with running_server(str(tmp_path_factory.mktemp("browser") / "skep.db")) as server:
        yield server


class Aged(NamedTuple):
    """A server with a past, by a clock that stands still."""

    server: RunningServer
    api: Api
    clock: ManualClock


@pytest.fixture(scope="package")
def aged() -> Iterator[Aged]:
    """A server that had traffic for an hour; it lasts, so its tests only look, or clean up."""
    clock = ManualClock(Instant(1_790_000_000_000_000))
    with running_server(clock=clock) as server:
        api = Api(server, "default")
        an_hour(api, server, clock)
        yield Aged(server, api, clock)
        api.close()


@pytest.fixture
def aged_screen(page: Page, aged: Aged, screenshots: Path | None, allowed: list[str]) -> Screen:
    """The dashboard of the server with a past."""
    allowed.append(aged.server.url)
    return Screen(page, aged.server.url, "default", screenshots)


@pytest.fixture
def allowed(server: RunningServer) -> list[str]:
    """What a page may ask for."""
    return [server.url, "data:", "about:"]


@pytest.fixture(scope="package")
def screenshots() -> Path | None:
    """Where screenshots are kept, if anywhere."""
    named = os.environ.get("SKEP_SCREENSHOTS")
    if not named:
        return None
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def api(server: RunningServer) -> Iterator[Api]:
    """The API as a tenant that nobody else is."""
    api = Api(server, next(TENANTS))
    yield api
    api.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained of, or asked elsewhere for."""
    return []


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """What all tests share: a new one takes as long as four tabs, since its pages have a process of their own."""
    context = browser.new_context(viewport={"width": WIDE["width"], "height": WIDE["height"]})
    yield context
    context.close()


@pytest.fixture(scope="package")
def tab(context: BrowserContext) -> Page:
    """The tab of all tests: each one more is a window, with processes for its frame, and takes more than most tests do."""
    tab = context.new_page()
    resize(tab, WIDE)
    return tab


@pytest.fixture
def page(tab: Page, complaints: list[str], allowed: list[str]) -> Iterator[Page]:
    """A tab as if it were new, which must have nothing to complain of when the test ends."""

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith(tuple(allowed)):
            complaints.append(f"asked {request.url}")

    def failed(error: Error) -> None:
        complaints.append(f"script: {error}")

    def opened(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    with (
        hearing(tab, "console", heard),
        hearing(tab, "pageerror", failed),
        hearing(tab, "request", asked),
        hearing(tab, "dialog", opened),
    ):
        yield tab
    forget(tab, [origin for origin in allowed if origin.startswith("http")])
    assert complaints == []


@pytest.fixture
def screen(page: Page, server: RunningServer, api: Api, screenshots: Path | None) -> Screen:
    """The dashboard as the test's tenant sees it."""
    return Screen(page, server.url, api.tenant, screenshots)
