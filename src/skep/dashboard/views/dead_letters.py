"""Dead letters: grouped by error; selected one by one, by kind or by a filter; replayed, edited, purged.

Grouping looks at the newest `LOOKED_AT` of a queue, or of all together, and says so when there are more. Every action has a preview first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec

from skep.dashboard.deliveries import deliveries_of
from skep.dashboard.fingerprints import LOOKED_AT, LetterKind, kinds
from skep.dashboard.payloads import download, headers_of, one_line, shown
from skep.dashboard.site import Action, Fields, InvalidFormError, Page, Site, check_shown_again, in_form
from skep.dashboard.views.queue import key_to_change
from skep.errors import Code, SkepError
from skep.http.dead_letter_requests import marked, missing, named_letters, replay_edited
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ, READ_TO_CHANGE
from skep.http.tenant_scan import Scanned
from skep.ids import id_text
from skep.model import DeadLetter, DeadLetterFilter, DeadReason, QueueKey, Seq

GRAVES = 20
"""Dead-letter queues that are looked at when none is chosen: those with most."""
KINDS = 100
LETTERS = 50
PREVIEWED = 5
PURGE_WORD = "purge"
_SELECTED_BY = ("sign", "source", "reason", "error")


def _graves(queues: Sequence[Scanned]) -> list[Scanned]:
    found = [one for one in queues if one.queue.holds_dead_letters]
    return sorted(found, key=lambda one: (-one.stats.dead_letters, one.queue.key.name))


async def dead_letters(site: Site, call: Call) -> Answer:
    """All kinds of death, of one dead-letter queue or of those with most letters."""
    links = site.links(call)
    snapshot = await site.snapshot(call)
    graves = _graves(snapshot.seen.queues)
    chosen = links.query.get("queue")
    if chosen:
        call.queue(chosen)
    wanted = {name: links.query.get(name, "") for name in ("source", "reason", "error")}
    names = [chosen] if chosen else [one.queue.key.name for one in graves[:GRAVES] if one.stats.dead_letters]
    found: list[LetterKind] = []
    is_cut, looked_at = False, LOOKED_AT // max(1, len(names))
    for name in names:
        deaths = await site.engine.history.deaths(QueueKey(name, links.tenant), limit=looked_at)
        is_cut = is_cut or len(deaths) == looked_at
        found += kinds(name, [one for one in deaths if _is_wanted(one.source_queue, one.reason, one.error, wanted)])
    found.sort(key=lambda kind: (-kind.count, -kind.last_at))
    return site.page(
        call, "dead_letters.html", screen="dead-letters", snapshot=snapshot, graves=graves, chosen=chosen, kinds=found[:KINDS], number=len(found),
        is_cut=is_cut, looked_at=looked_at, wanted=wanted, reasons=list(DeadReason), in_all=sum(one.stats.dead_letters for one in graves), looked_in=len(names), total=sum(kind.count for kind in found),
    )  # fmt: skip


def _is_wanted(source: str, reason: str, error: str | None, wanted: Mapping[str, str]) -> bool:
    return (
        wanted["source"] in ("", source) and wanted["reason"] in ("", reason)
        and (not wanted["error"] or wanted["error"] in (error or ""))
    )  # fmt: skip


async def kind(site: Site, call: Call) -> Answer:
    """The dead letters of one kind, to choose from."""
    links = site.links(call)
    key = call.queue(call.path("queue"))
    found = await _kind(site, key, call.path("sign"))
    seqs = sorted(found.seqs, reverse=True)
    before = parameters.position(links.query, "before")
    if before is not None:
        seqs = [seq for seq in seqs if seq < before]
    letters = await _letters(site, key, seqs[:LETTERS])
    return site.page(
        call, "dead_kind.html", screen="dead-letters", kind=found, rows=[(one, one_line(one.payload, one.content_type)) for one in letters],
        before=seqs[LETTERS - 1] if len(seqs) > LETTERS else None, id_text=id_text,
    )  # fmt: skip


async def _kind(site: Site, key: QueueKey, sign: str) -> LetterKind:
    deaths = await site.engine.history.deaths(key, limit=LOOKED_AT)
    found = next((one for one in kinds(key.name, deaths) if one.sign == sign), None)
    if found is None:
        raise SkepError(Code.MESSAGE_NOT_FOUND, "there are no dead letters with this error any more")
    return found


async def _letters(site: Site, key: QueueKey, seqs: Sequence[Seq]) -> list[DeadLetter]:
    """The dead letters with these seqs, newest first."""
    if not seqs:
        return []
    wanted = DeadLetterFilter(queue=key, seqs=list(seqs))
    found = await site.engine.dead_letters.page(wanted, after=Seq(min(seqs) - 1), limit=len(seqs))
    return found[::-1]


async def _letter(site: Site, call: Call) -> DeadLetter:
    """The dead letter that a path names."""
    key = call.queue(call.path("queue"))
    seq = parameters.position({"seq": call.path("seq")}, "seq") or 0
    found = await _letters(site, key, [Seq(seq)])
    if not found:
        raise missing(key, str(seq))
    return found[0]


async def letter(site: Site, call: Call, typed: str | None = None, problem: SkepError | None = None) -> Answer:
    """One dead letter with all its details; after a mistake with the ``typed`` payload and the problem."""
    links = site.links(call)
    one = await _letter(site, call)
    check_shown_again(call, one.queue, problem)
    source = QueueKey(one.source_queue, links.tenant)
    deliveries = []
    if one.source_seq and call.may(source):
        try:
            [deliveries] = await deliveries_of(site.engine, [await site.engine.browse.message(source, one.source_seq)])
        except SkepError as error:
            if error.code not in (Code.MESSAGE_NOT_FOUND, Code.QUEUE_NOT_FOUND):
                raise
    text = one.payload.decode(errors="replace") if one.content_type is None else None
    return site.page(
        call, "dead_letter.html", HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY, problem=problem, screen="dead-letters", letter=one, payload=shown(one.payload, one.content_type),
        headers=headers_of(one.headers), id=id_text(one.id), trace_id=id_text(one.trace_id), deliveries=deliveries,
        text=typed if typed is not None else None if text is None else _pretty(text), bytes=len(one.payload),
    )  # fmt: skip


async def replays(site: Site, call: Call) -> Answer:
    """The replayed messages of a dead-letter queue, and their outcomes."""
    links = site.links(call)
    key = call.queue(call.path("queue"))
    before = parameters.position(links.query, "before")
    rows = await site.engine.dead_letters.replays(key, before=None if before is None else Seq(before), limit=LETTERS)
    return site.page(
        call, "dead_replays.html", screen="dead-letters", queue=key.name, rows=rows,
        before=rows[-1][0].dead_seq if len(rows) == LETTERS else None,
    )  # fmt: skip


async def payload(site: Site, call: Call) -> Answer:
    """A dead letter's whole payload, as a file."""
    one = await _letter(site, call)
    return download(one.payload, one.queue.name, one.seq)


def _pretty(text: str) -> str:
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return text


async def confirm(site: Site, call: Call) -> Answer:
    """The preview of a replay or purge."""
    links = site.links(call)
    key = key_to_change(call)
    what = links.query.get("do", "")
    if what not in ("replay", "purge"):
        raise SkepError(Code.INVALID_REQUEST, "choose replay or purge")
    said = {name: links.query.get(name, "") for name in _SELECTED_BY}
    seqs = call.values("seq")
    if not seqs and links.query.get("chosen"):
        raise SkepError(Code.INVALID_REQUEST, "no dead letter is selected")
    wanted = await marked(site.engine, await _selection(site, key, said, seqs))
    return await _question(site, call, wanted, what, said, seqs)


async def _question(
    site: Site, call: Call, wanted: DeadLetterFilter, what: str, said: Mapping[str, str], seqs: Sequence[str],
    problem: SkepError | None = None,
) -> Answer:  # fmt: skip
    """The page that asks for a confirmation; after a mistake with the problem."""
    check_shown_again(call, wanted.queue, problem)
    number = await site.engine.dead_letters.count(wanted)
    first = min(wanted.seqs) - 1 if wanted.seqs else None
    examples = await site.engine.dead_letters.page(wanted, after=None if first is None else Seq(first), limit=PREVIEWED)
    return site.page(
        call, "dead_confirm.html", HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY, screen="dead-letters",
        queue=wanted.queue.name, what=what, said=said, seqs=seqs, number=number, problem=problem, word=PURGE_WORD, mark=wanted.up_to,
        examples=[(one, one_line(one.payload, one.content_type)) for one in examples],
    )  # fmt: skip


async def _selection(site: Site, key: QueueKey, said: Mapping[str, str], seqs: Sequence[str]) -> DeadLetterFilter:
    """Which dead letters are meant: those chosen, those of a kind, or all that match."""
    if seqs:
        return DeadLetterFilter(queue=key, seqs=[Seq(parameters.position({"seq": text}, "seq") or 0) for text in seqs])
    if said.get("sign"):
        return DeadLetterFilter(queue=key, seqs=(await _kind(site, key, said["sign"])).seqs)
    given = {name: value for name, value in said.items() if value}
    return DeadLetterFilter(
        queue=key, source_queue=given.get("source"), reason=parameters.choice(given, "reason", DeadReason),
        error_contains=given.get("error"),
    )  # fmt: skip


async def _asked(site: Site, call: Call, fields: Fields) -> tuple[QueueKey, DeadLetterFilter]:
    key = call.queue(call.path("queue"))
    said = {name: fields.get(name) for name in _SELECTED_BY}
    wanted = await _selection(site, key, said, fields.all("seq"))
    mark = parameters.position({"mark": fields.get("mark")}, "mark") if fields.get("mark") else None
    return key, msgspec.structs.replace(wanted, up_to=None if mark is None else Seq(mark))


async def replay(site: Site, call: Call, fields: Fields) -> str:
    """Send dead letters back."""
    key, wanted = await _asked(site, call, fields)
    done = await site.engine.dead_letters.replay(wanted)
    call.note(count=done.count, target=named_letters(key, [one.dead_seq for one in done.replayed]))
    return site.links(call).url("dead-letters", queue=key.name, notice="replayed", number=done.count)


async def purge(site: Site, call: Call, fields: Fields) -> str:
    """Delete dead letters for good, when the word was typed."""
    links = site.links(call)
    key, wanted = await _asked(site, call, fields)
    if fields.get("confirm") != PURGE_WORD:
        call.note(declined=True)
        said = {name: fields.get(name) for name in _SELECTED_BY}
        error = SkepError(Code.INVALID_REQUEST, f"type the word {PURGE_WORD} to delete dead letters")
        raise InvalidFormError(error, await _question(site, call, wanted, "purge", said, fields.all("seq"), error))
    number = await site.engine.dead_letters.purge(wanted)
    call.note(count=number, target=named_letters(key, wanted.seqs or ()))
    return links.url("dead-letters", queue=key.name, notice="purged", number=number)


async def edit(site: Site, call: Call, fields: Fields) -> str:
    """Send one dead letter back with another payload, which its queue must take."""
    links = site.links(call)
    one = await _letter(site, call)
    typed = fields.get("payload")
    done = await in_form(
        replay_edited(site.engine, one, typed.encode(), call), lambda error: letter(site, call, typed, error)
    )
    return links.url("dead-letters", queue=one.queue.name, notice="replayed", number=done.count)


PAGES: list[Page] = [
    Page("/dead-letters", ("queue", "source", "reason", "error"), dead_letters),
    Page("/dead-letters/{queue}/kinds/{sign}", ("before",), kind, READ),
    Page("/dead-letters/{queue}/letters/{seq}", (), letter, READ),
    Page("/dead-letters/{queue}/replays", ("before",), replays, READ),
    Page("/dead-letters/{queue}/letters/{seq}/payload", (), payload, READ),
    Page(
        "/dead-letters/{queue}/confirm",
        ("do", "sign", "seq*", "source", "reason", "error", "chosen"),
        confirm,
        READ_TO_CHANGE,
    ),
]
ACTIONS: list[tuple[str, Action]] = [
    ("/dead-letters/{queue}/replay", replay),
    ("/dead-letters/{queue}/purge", purge),
    ("/dead-letters/{queue}/letters/{seq}/edit", edit),
]
