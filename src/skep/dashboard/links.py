"""The links of a page: all of them keep its tenant and its path prefix."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from skep.errors import Code, SkepError
from skep.http.request.call import Call
from skep.http.request.prefix import prefix_of
from skep.model import DEFAULT_TENANT


class Links:
    """A request's tenant and prefix. All links of a page are made here, so that none forgets either."""

    __slots__ = ("path", "prefix", "query", "tenant")

    def __init__(self, call: Call, prefix: str = "") -> None:
        """``prefix`` is what the settings say; a proxy in front of the server may say another."""
        self.prefix = prefix_of(call, prefix)
        try:
            self.query = dict(call.query)
            self.query.pop("tenant", "")
            self.tenant = call.tenant
        except SkepError as error:
            if error.code not in (Code.INVALID_REQUEST, Code.FORBIDDEN):
                raise
            self.query, self.tenant = {}, DEFAULT_TENANT
        self.path = call.scope["raw_path"].decode("ascii")

    def url(self, *parts: str | int, **query: object) -> str:
        """The link to a page; each part of its path is quoted, and what is None or empty is left out of the query."""
        path = "/".join(quote(str(part), safe="") for part in parts)
        return self._with(f"{self.prefix}/{path}", query)

    def here(self, **query: object) -> str:
        """This page with a changed query."""
        return self._with(self.prefix + self.path, {**self.query, **query})

    def api(self, *parts: str) -> str:
        """The path of an operation of the API."""
        return f"{self.prefix}/api/v1/" + "/".join(quote(part, safe="") for part in parts)

    def _with(self, path: str, query: dict[str, object]) -> str:
        if self.tenant != DEFAULT_TENANT:
            query = {**query, "tenant": self.tenant}
        told = {name.rstrip("_"): str(value) for name, value in query.items() if value not in (None, "", False)}
        return f"{path}?{urlencode(told)}" if told else path
