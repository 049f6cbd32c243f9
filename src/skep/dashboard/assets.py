"""Styles and scripts: read once, named by what they hold, so that a browser keeps them until they change."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from msgspec import Struct

from skep.errors import Code, SkepError
from skep.http.request.call import CACHE_CONTROL, Answer, Call

_KINDS = {"css": b"text/css; charset=utf-8", "js": b"text/javascript; charset=utf-8", "svg": b"image/svg+xml"}
_NAMES = ("skep.css", "skep.js", "vendor/htmx.min.js", "vendor/uplot.min.js", "vendor/uplot.min.css", "icon.svg")
FOR_EVER = (CACHE_CONTROL, b"public, max-age=31536000, immutable")


class Asset(Struct, frozen=True):
    """A file, and the name it is served by."""

    served_as: str
    body: bytes
    media_type: bytes


@cache
def assets() -> dict[str, Asset]:
    """All assets by their file names."""
    folder = files(__package__) / "static"
    found = {}
    for name in _NAMES:
        body = (folder / name).read_bytes()
        stem, _, kind = name.rpartition("/")[2].rpartition(".")
        digest = hashlib.sha256(body).hexdigest()[:12]
        found[name] = Asset(f"{stem}.{digest}.{kind}", body, _KINDS[kind])
    return found


async def serve(call: Call) -> Answer:
    """Serve an asset by the name with its digest. No other file is served."""
    wanted = call.path("asset")
    for asset in assets().values():
        if asset.served_as == wanted:
            return Answer(200, asset.body, asset.media_type, caching=FOR_EVER)
    raise SkepError(Code.ROUTE_NOT_FOUND, "there is no such file")
