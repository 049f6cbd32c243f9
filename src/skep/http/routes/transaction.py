"""`POST /api/v1/transaction`: acks, pushes, effects and receipts that happen together or not at all (I15)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http import pushing, recorded
from skep.http.labels import label_queues
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import POP_OR_PUSH
from skep.http.request.route import Route
from skep.http.routes.ack import ACK_EXAMPLE, count_settled, results, settlements
from skep.model.key import Verb
from skep.observe.metrics import Meter
from skep.wire.messages import TransactionRequest, TransactionResponse

LEVELS_ABOVE_EVENTS = pushing.LEVELS_ABOVE_PAYLOADS + 2
"""The data of an event stands in an event, in a list, in an effect, in a list, in the body."""

_decode_transaction = msgspec.json.Decoder(TransactionRequest)


def routes(engine: Engine, meter: Meter) -> list[Route]:
    """Transactions."""

    async def transaction(call: Call) -> Answer:
        request = await call.json(_decode_transaction, levels_above=LEVELS_ABOVE_EVENTS)
        acks, tenant = request.acknowledgments, call.tenant
        if request.effects or request.receipts or not (acks or request.items):
            call.check_tenant(Verb.PUSH)  # entities are of no queue
        messages = pushing.new_messages(request.items, call)
        meant = settlements(acks, call)
        await label_queues(engine, request.items, tenant)
        try:
            outcome = await engine.transact(
                meant, messages, effects=recorded.effects(request.effects, tenant),
                receipts=recorded.receipts(request.receipts, tenant, engine.records), json_checked=True,
            )  # fmt: skip
        except SkepError as error:
            pushing.count_misfits(meter, messages, error)
            raise
        if not outcome.repeated:
            count_settled(meter, meant, outcome.settled)
            if messages:
                pushing.count_pushed(meter, messages, outcome.pushed)
        told = TransactionResponse(
            outcome.committed, results(acks, outcome.settled), pushing.pushed_messages(outcome.pushed.results),
            outcome.repeated or UNSET,
        )  # fmt: skip
        if outcome.committed:
            return json_answer(told)
        if outcome.conflict is not None:
            raise conflict(outcome.conflict, outcome.conflict_at)
        codes = [*(result.code for result in outcome.settled), *(result.code for result in outcome.pushed.results)]
        code = next((code for code in codes if code not in (None, Code.BATCH_REFUSED)), Code.BATCH_REFUSED)
        raise SkepError(
            code or Code.BATCH_REFUSED, "nothing of the transaction happened, since a part of it was refused",
            results=told.results, messages=told.messages,
        )  # fmt: skip

    return [
        Route(
            method="POST", path="/api/v1/transaction", access=POP_OR_PUSH, handler=transaction, request=TransactionRequest,
            answers={200: TransactionResponse}, summary="Settle, push and record together, whole or not at all",
            description="Beside acks and pushes it takes effects on entities and receipts. 409 with ENTITY_CHANGED when an"
            " entity is not at the version an effect was computed from, and with RECEIPT_EXISTS when it was done before.",
            tag="Messages", verb="transaction",
            example={"acknowledgments": [ACK_EXAMPLE], "items": [{"queue": "invoices", "payload": {"order": 1001}}]},
        ),
    ]  # fmt: skip


def conflict(code: Code, at: int | None) -> SkepError:
    """The error of a transaction that conflicts with an earlier one; ``at`` is the index of the receipt or effect."""
    if code is Code.RECEIPT_EXISTS:
        return SkepError(
            code, f"nothing of the transaction happened, since it was done before: receipt {at} exists", index=at
        )
    return SkepError(
        code, f"nothing of the transaction happened: the entity of effect {at} has changed meanwhile", index=at
    )
