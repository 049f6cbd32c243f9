"""The table of actions: what each reads, what carries it out, and whether it is a deed of an admin, which is noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from skep.http.request.call import Call
from skep.http.sqs import managing, moves, receiving, sending, settling, shapes, tagging
from skep.http.sqs.door import SqsDoor, Undoable
from skep.model.key import Verb

Perform = Callable[[SqsDoor, Call, Any], Awaitable[Struct | Undoable]]


class SqsAction(Struct, frozen=True):
    """One action. ``verb`` is what a caller needs for it in general; it asks for the queue itself."""

    name: str
    request: type[Struct]
    perform: Perform
    verb: Verb

    @property
    def is_noted(self) -> bool:
        """Whether the audit log has it."""
        return self.verb is Verb.ADMIN


_ACTIONS = (
    SqsAction("SendMessage", shapes.SendRequest, sending.send, Verb.PUSH),
    SqsAction("SendMessageBatch", shapes.SendBatchRequest, sending.send_batch, Verb.PUSH),
    SqsAction("ReceiveMessage", shapes.ReceiveRequest, receiving.receive, Verb.POP),
    SqsAction("DeleteMessage", shapes.HandleRequest, settling.delete, Verb.POP),
    SqsAction("DeleteMessageBatch", shapes.HandleBatchRequest, settling.delete_batch, Verb.POP),
    SqsAction("ChangeMessageVisibility", shapes.HandleRequest, settling.change, Verb.POP),
    SqsAction("ChangeMessageVisibilityBatch", shapes.HandleBatchRequest, settling.change_batch, Verb.POP),
    SqsAction("CreateQueue", shapes.CreateQueueRequest, managing.create, Verb.ADMIN),
    SqsAction("DeleteQueue", shapes.QueueRequest, managing.delete, Verb.ADMIN),
    SqsAction("PurgeQueue", shapes.QueueRequest, managing.purge, Verb.ADMIN),
    SqsAction("GetQueueUrl", shapes.GetQueueUrlRequest, managing.find, Verb.READ),
    SqsAction("ListQueues", shapes.ListQueuesRequest, managing.list_queues, Verb.READ),
    SqsAction("GetQueueAttributes", shapes.GetAttributesRequest, managing.get_attributes, Verb.READ),
    SqsAction("SetQueueAttributes", shapes.SetAttributesRequest, managing.set_attributes, Verb.ADMIN),
    SqsAction("ListDeadLetterSourceQueues", shapes.PageRequest, managing.dead_letter_sources, Verb.READ),
    SqsAction("ListQueueTags", shapes.QueueRequest, tagging.list_tags, Verb.READ),
    SqsAction("TagQueue", shapes.TagRequest, tagging.tag, Verb.ADMIN),
    SqsAction("UntagQueue", shapes.UntagRequest, tagging.untag, Verb.ADMIN),
    SqsAction("AddPermission", shapes.AddPermissionRequest, tagging.add_permission, Verb.ADMIN),
    SqsAction("StartMessageMoveTask", shapes.StartMoveRequest, moves.start, Verb.ADMIN),
    SqsAction("ListMessageMoveTasks", shapes.ListMovesRequest, moves.list_moves, Verb.READ),
    SqsAction("CancelMessageMoveTask", shapes.CancelMoveRequest, moves.cancel, Verb.ADMIN),
    SqsAction("RemovePermission", shapes.RemovePermissionRequest, tagging.remove_permission, Verb.ADMIN),
)

ACTIONS = {action.name: action for action in _ACTIONS}
DECODERS = {action.name: msgspec.json.Decoder(action.request) for action in _ACTIONS}
