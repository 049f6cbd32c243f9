"""Random apps, of every construct of the language; they are well formed but need not make sense."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from skep.model import Ordering, QueueChanges
from skep.model.queue_settings import SETTINGS, SettingKind
from skep.spec.ir import (
    Algorithm,
    App,
    Check,
    Command,
    CommandCall,
    Deliver,
    Emit,
    Encoding,
    Entity,
    EventMode,
    ExtraFields,
    Fairness,
    Idempotency,
    IdempotencySource,
    OnFail,
    OnInvalid,
    Queue,
    RateLimit,
    Schedule,
    Scheme,
    Tenant,
    TenantSource,
    Then,
    Verify,
    Webhook,
)
from skep.spec.types import PLAIN, STRING, UUID, Field, Type, TypeKind, enum_of, list_of, map_of, optional

identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
queue_names = st.one_of(identifiers, texts.filter(bool))
durations = st.sampled_from([0.001, 0.25, 1.0, 1.5, 30.0, 60.0, 90.0, 3600.0, 5400.0, 86_400.0, 604_800.0])
expressions = st.sampled_from([
    "a", "payload.incident.id", '"text"', "'it is // no comment # either'", 'a == "{" ? "}" : "\\"("', "[1, 2, 3]",
    '{"a": {"b": [1, 2]}}', "items.map(x, x.n)", "items.filter(x,\nx.n > 1 &&  // only these\nx.m\n)", "(a)", "(a) && (b)",
    r"name.matches(r'\d{2}')", "f(\n\na\n)", "1 < 2 && 3 > 2", "-1", "true",
    '"""one\n  two  \n\n\tthree {\n  // no comment"""', "f(\n'''a ( \n # '' \\''' \n ''' + b,\nr\"\"\"\\\n c \"\"\")",
    "payload.`a//b c`.`d#-e.f`", "payload.items.all(i, item, item.n > i)", "items.transformMap(k, v, v > 1,\nv * 2\n)",
])  # fmt: skip

plain_types = st.sampled_from([Type(kind) for kind in sorted(PLAIN)])
words = st.one_of(identifiers, texts.filter(bool))
enums = st.lists(words, min_size=1, max_size=3, unique=True).map(lambda choices: enum_of(*choices))
keys = st.one_of(st.just(STRING), st.just(UUID), enums)


def _deeper(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(inner.map(list_of), st.builds(map_of, keys, inner), inner.map(optional))


types = st.recursive(st.one_of(plain_types, enums), _deeper, max_leaves=4)
json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), texts
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=3,
)


@st.composite
def _fields(draw: st.DrawFn) -> Field:
    type_ = draw(types)
    if draw(st.booleans()):
        return Field(type_)
    if type_.kind is TypeKind.ENUM:
        return Field(type_, draw(st.sampled_from(type_.choices)))
    return Field(type_, draw(json_values))


def tables(values: st.SearchStrategy[Any], names: st.SearchStrategy[str] = identifiers) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, values, max_size=3)


fields = tables(_fields())
mappings = tables(expressions)
maybe_expression = st.none() | expressions
variables = st.lists(identifiers, max_size=2)
calls = st.builds(CommandCall, entity=identifiers, command=identifiers, fields=mappings)
values = {
    SettingKind.NAME: queue_names, SettingKind.WHOLE: st.integers(0, 9_999), SettingKind.SECONDS: durations, SettingKind.SWITCH: st.booleans(),
    SettingKind.ORDERING: st.sampled_from(Ordering),
}  # fmt: skip
settings = st.fixed_dictionaries(
    {}, optional={setting.name: values[setting.kind] for setting in SETTINGS.values() if setting.block is not None}
).map(lambda given: msgspec.structs.replace(QueueChanges(), **given))
by_key = st.builds(Idempotency, source=st.just(IdempotencySource.KEY), value=expressions, window_seconds=durations)
idempotencies = st.one_of(
    by_key,
    st.builds(Idempotency, source=st.just(IdempotencySource.HEADER), value=texts, window_seconds=durations),
    st.builds(Idempotency, source=st.just(IdempotencySource.BODY), window_seconds=durations),
    st.just(Idempotency(source=IdempotencySource.NONE)),
)


def deliveries(**address: st.SearchStrategy[str]) -> st.SearchStrategy[Deliver]:
    """Deliveries to an address, or to what a variable says."""
    headers = tables(texts, queue_names)
    return st.builds(
        Deliver,
        **address,
        headers=headers,
        headers_env=headers,
        secret_env=variables,
        timeout_seconds=durations,
        cloudevents=st.none() | st.sampled_from(EventMode),
    )


queues = st.builds(
    Queue,
    message_type=fields,
    extra_fields=st.sampled_from(ExtraFields),
    on_invalid=st.sampled_from(OnInvalid),
    settings=settings,
    key=maybe_expression,
    idempotency=st.none() | by_key,
    map_to=st.none() | calls,
    then=st.lists(st.builds(Then, queue=queue_names, fields=mappings, when=maybe_expression), max_size=2),
    deliver=st.none() | deliveries(url=texts) | deliveries(url_env=texts),
    rate_limit=st.none() | st.builds(RateLimit, count=st.integers(0, 999), per_seconds=durations, key=maybe_expression),
    fairness=st.none() | st.sampled_from(Fairness),
    concurrency=st.none() | st.integers(0, 99),
    batch=st.none() | st.integers(0, 99),
    checks=tables(st.builds(Check, holds=expressions, on_fail=st.sampled_from(OnFail))),
)
verifies = st.one_of(
    st.just(Verify(scheme=Scheme.NONE)),
    st.builds(
        Verify, scheme=st.just(Scheme.HMAC), secret_env=variables, header=st.none() | texts, prefix=texts,
        encoding=st.sampled_from(Encoding), algorithm=st.sampled_from(Algorithm),
    ),
    st.builds(Verify, scheme=st.sampled_from([Scheme.PAGERDUTY, Scheme.GITHUB]), secret_env=variables),
    st.builds(
        Verify, scheme=st.sampled_from([Scheme.STRIPE, Scheme.SLACK, Scheme.STANDARD_WEBHOOKS]), secret_env=variables,
        tolerance_seconds=durations,
    ),
)  # fmt: skip
tenants = st.one_of(
    st.just(Tenant(source=TenantSource.PATH)),
    st.builds(Tenant, source=st.just(TenantSource.HEADER), header=texts),
    st.builds(Tenant, source=st.just(TenantSource.KEY), key=expressions),
)
webhooks = st.builds(
    Webhook,
    queue=st.none() | queue_names,
    command=st.none() | calls,
    verify=st.none() | verifies,
    idempotency=st.none() | idempotencies,
    keep_headers=st.none() | st.lists(texts, max_size=2),
    tenant=st.none() | tenants,
    message=mappings,
)
commands = st.builds(
    Command,
    input=fields,
    guard=maybe_expression,
    emits=st.lists(st.builds(Emit, event=identifiers, fields=mappings, when=maybe_expression), max_size=2),
)
entities = st.builds(Entity, id=expressions, state=fields, commands=tables(commands), events=tables(mappings))
schedules = st.builds(Schedule, cron=texts, queue=queue_names, message=mappings, timezone=texts)
apps = st.builds(
    App,
    name=identifiers,
    queues=tables(queues, queue_names),
    webhooks=tables(webhooks, queue_names),
    entities=tables(entities),
    schedules=tables(schedules, queue_names),
)
