"""The reference page: one file to the browser, which asks nobody else for anything but `/openapi.json`."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Page(NamedTuple):
    """The page, and the content security policy that lets it do what it does and nothing else."""

    html: bytes
    policy: bytes


@cache
def page() -> Page:
    """The page with its style and its script in it."""
    folder = files(__package__)
    template, style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    html = template.replace("/*style*/", style).replace("/*script*/", script)
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    )
    return Page(html.encode(), policy.encode())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
