"""`/api/v1/holder`: a server on an SQLite file proves that it holds the file; see `skep.access.presence`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.access.presence import PATH, proof
from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import OPEN
from skep.http.request.route import Route
from skep.wire.access import HolderProof, HolderRequest

_decode = msgspec.json.Decoder(HolderRequest)


def routes(secret: Callable[[], str | None]) -> list[Route]:
    """The proof; ``secret`` gives what the server wrote into its file, None when it wrote none."""

    async def prove(call: Call) -> Answer:
        request = await call.json(_decode)
        known = secret()
        if known is None:
            raise SkepError(Code.ROUTE_NOT_FOUND, "this server holds no SQLite file; keys in PostgreSQL need no server")
        return json_answer(HolderProof(proof(known, request.challenge), asks_for_keys=call.is_guarded))

    return [
        Route(
            method="POST", path=PATH, handler=prove, tag="Access", access=OPEN, request=HolderRequest,
            answers={200: HolderProof}, summary="Prove that this server holds the SQLite file that `skep key` found",
            description="The answer is an HMAC of the challenge, with the secret in the private file beside the database. 404 on a "
            "server that has no such file.",
            example={"challenge": "5f0c6b1e9a7d4f2283c1d0e4b6a59788"},
        )
    ]  # fmt: skip
