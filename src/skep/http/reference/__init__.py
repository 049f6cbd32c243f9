"""The API reference page: one file, which loads nothing but `/openapi.json`."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class ReferencePage(NamedTuple):
    """The page, and a content security policy that allows only the page's own style and script."""

    html: bytes
    policy: bytes


@cache
def page() -> ReferencePage:
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
    return ReferencePage(html.encode(), policy.encode())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
