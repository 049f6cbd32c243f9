"""A browser without scripts: it opens pages, sends their forms, follows redirects and keeps cookies. Nothing of ours on its side."""

from __future__ import annotations

import html
import http.client
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urlencode

from skep.testing.server import RunningServer

VOID = frozenset({"input", "meta", "link", "br", "line", "path", "rect", "polyline", "img"})
Pairs = Sequence[tuple[str, str]]


class Form(NamedTuple):
    """A form of a page: where it goes, how, and what its fields hold."""

    action: str
    method: str
    fields: list[tuple[str, str]]
    buttons: list[tuple[str, str, str]]
    """Name, value and text of each button."""


class Shown(NamedTuple):
    """A page as it came."""

    status: int
    headers: dict[str, str]
    html: str

    @property
    def text(self) -> str:
        """What one reads."""
        body = re.sub(r"<(script|style)\b.*?</\1>", " ", self.html, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    @property
    def notice(self) -> str | None:
        """What the page says of what was just done."""
        found = re.search(r'<p class="notice"[^>]*>(.*?)</p>', self.html, re.DOTALL)
        return None if found is None else html.unescape(found[1])

    @property
    def forms(self) -> list[Form]:
        """All its forms."""
        reader = _Reader()
        reader.feed(self.html)
        return reader.forms

    def form(self, action: str) -> Form:
        """The one whose action ends so, whatever its query."""
        found = [one for one in self.forms if one.action.partition("?")[0].endswith(action)]
        assert len(found) == 1, (action, [one.action for one in self.forms])
        return found[0]

    @property
    def links(self) -> list[str]:
        """Where it leads."""
        return [html.unescape(link) for link in re.findall(r'<a\b[^>]*?href="([^"]*)"', self.html)]


class Visitor:
    """Someone with a browser, on one server."""

    def __init__(self, server: RunningServer, tenant: str = "default") -> None:
        self.server = server
        self.tenant = tenant
        self.cookies: dict[str, str] = {}

    def open(self, path: str, **query: str) -> Shown:
        """Go to a page."""
        asked = {**query, **({} if self.tenant == "default" else {"tenant": self.tenant})}
        return self.ask("GET", f"{path}{'&' if '?' in path else '?'}{urlencode(asked)}" if asked else path)

    def send(self, form: Form, *changed: tuple[str, str], button: str | None = None) -> Shown:
        """Fill in a form, press a button, and see the page it leads to."""
        given = dict(changed)
        pairs = [(name, given.pop(name, value)) for name, value in form.fields] + list(given.items())
        pairs += [(name, value) for name, value, text in form.buttons if name and text == button]
        if form.method == "get":
            return self.ask("GET", f"{form.action.partition('?')[0]}?{urlencode(pairs)}")
        return self.post(form.action, pairs)

    def post(self, path: str, pairs: Pairs, **headers: str) -> Shown:
        """Send a form as a browser does, from a page of this server unless the headers say otherwise."""
        told = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", **headers}
        return self.ask("POST", path, urlencode(pairs).encode(), told)

    def sign_in(self, key: str) -> Shown:
        """With a key."""
        return self.post("/login", [("key", key), ("next", "/")])

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Shown:
        """One request, and those it is sent on to."""
        shown = self.once(method, path, body, headers)
        hops = 0
        while shown.status == 303:
            hops += 1
            assert hops < 5, path
            shown = self.once("GET", shown.headers["location"], None, {"Sec-Fetch-Site": "same-origin"})
        return shown

    def once(self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None) -> Shown:
        """One request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        told = {"Accept": "text/html", **(headers or {})}
        if self.cookies:
            told["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        try:
            connection.request(method, path, body, told)
            response = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in response.getheaders()]
            self._keep([value for name, value in pairs if name == "set-cookie"])
            return Shown(response.status, dict(pairs), response.read().decode(errors="replace"))
        finally:
            connection.close()

    def _keep(self, given: list[str]) -> None:
        for cookie in given:
            pair, _, attributes = cookie.partition(";")
            name, _, value = pair.partition("=")
            if "max-age=0" in attributes.lower():
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value


class _Reader(HTMLParser):
    """Finds forms."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open: Form | None = None
        self._text: list[str] | None = None
        self._after: tuple[str, dict[str, str]] | None = None
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = Form(told.get("action", ""), told.get("method", "get").lower(), [], [])
            self.forms.append(self._open)
        if self._open is None:
            return
        if tag == "input" and "name" in told and "disabled" not in told:
            if told.get("type") not in ("checkbox", "radio") or "checked" in told:
                self._open.fields.append((told["name"], told.get("value", "")))
        elif tag == "select":
            self._select = told.get("name", "")
            self._open.fields.append((self._select, ""))
        elif tag in ("textarea", "button", "option"):
            self._after, self._text = (tag, told), []

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        if self._open is None or self._after is None or self._after[0] != tag or self._text is None:
            return
        told, text = self._after[1], "".join(self._text)
        self._after = self._text = None
        if tag == "textarea" and "name" in told:
            self._open.fields.append((told["name"], text))
        elif tag == "button":
            self._open.buttons.append((told.get("name", ""), told.get("value", ""), text.strip()))
        elif tag == "option" and ("selected" in told or self._open.fields[-1] == (self._select, "")):
            self._open.fields[-1] = (self._select, told.get("value", text))
