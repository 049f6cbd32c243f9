"""Deleting one message: a page that names the groups and leases of the message, and the action. Only the confirmed message goes."""

from __future__ import annotations

from skep.dashboard.filters import quoted
from skep.dashboard.payloads import one_line
from skep.dashboard.site import Action, Fields, Page, Site
from skep.dashboard.views.queue import key_of, key_to_change
from skep.errors import Code, SkepError
from skep.http.deleting import delete_message
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ_TO_CHANGE
from skep.http.views import wanted_id
from skep.ids import id_text
from skep.model import Seq


def _seq(call: Call) -> Seq:
    return Seq(parameters.position({"seq": call.path("seq")}, "seq") or 0)


async def confirm(site: Site, call: Call) -> Answer:
    """The page that asks: it names the groups and leases that lose the message."""
    key, seq = key_to_change(call), _seq(call)
    found = await site.engine.get_queue(key)
    message = await site.engine.browse.message(key, seq)
    try:
        would = await site.engine.delete_message(key, seq, message.id, dry_run=True)
    except SkepError as error:
        if error.code is not Code.MESSAGE_SETTLED:
            raise
        would = None
    return site.page(
        call, "message_delete.html", screen="messages", queue=found, message=message, would=would, id=id_text(message.id),
        line=one_line(message.payload, message.content_type),
    )  # fmt: skip


async def delete(site: Site, call: Call, fields: Fields) -> str:
    """Delete the message: it is not delivered again."""
    links, key, seq = site.links(call), key_of(call), _seq(call)
    await delete_message(site.engine, call, key, seq, wanted_id(fields.get("id")))
    return links.url("messages", q=f"queue:{quoted(key.name)}", notice="message_deleted", number=seq)


PAGES: list[Page] = [Page("/queues/{queue}/messages/{seq}/delete", (), confirm, READ_TO_CHANGE)]
ACTIONS: list[tuple[str, Action]] = [("/queues/{queue}/messages/{seq}/delete", delete)]
