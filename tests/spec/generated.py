"""Random expressions of a type, over the fields of the table's message; most have a value, some fail."""

from __future__ import annotations

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

_STRINGS = ["name", "payload.title", "'a'", "''", "'Zoë'", "tags[0]", "headers['x-kind']", "id", "'12'"]
_INTS = ["count", "payload.n", "0", "1", "-3", "7", "big", "numbers[1]", "size(tags)"]
_FLOATS = ["price", "payload.ratio", "0.0", "1.5", "-2.25", "1e10"]
_TIMES = ["created_at", "timestamp('2026-01-01T00:00:00Z')", "times[1]"]
_DURATIONS = ["duration('90s')", "duration('-1.5h')", "duration('0s')"]
_BOOLS = ["paid", "true", "false", "payload.yes", "has(payload.none)", "has(payload.nothing)"]


def _binary(signs: str, left: Texts, right: Texts) -> Texts:
    return st.tuples(left, st.sampled_from(signs.split()), right).map(lambda parts: f"({' '.join(parts)})")


def _form(form: str, *parts: Texts) -> Texts:
    return st.tuples(*parts).map(lambda given: form.format(*given))


def expressions(depth: int = 3, *, of_two: bool = False) -> Texts:
    """An expression of any type; with ``of_two`` also with macros of two variables, which the reference does not have."""
    return st.one_of(*by_type(depth, of_two).values())


def by_type(depth: int, of_two: bool = False) -> dict[str, Texts]:
    """Expressions of each type, that many levels deep."""
    leaves = {
        "string": st.sampled_from(_STRINGS), "int": st.sampled_from(_INTS), "float": st.sampled_from(_FLOATS),
        "bool": st.sampled_from(_BOOLS), "time": st.sampled_from(_TIMES), "duration": st.sampled_from(_DURATIONS),
    }  # fmt: skip
    if depth == 0:
        return leaves
    below = by_type(depth - 1, of_two)
    text, whole, number, truth = below["string"], below["int"], below["float"], below["bool"]
    time, length = below["time"], below["duration"]
    forms = {
        "string": [
            _binary("+", text, text), _form("string({})", whole), _form("{}.upperAscii()", text), _form("string({})", truth),
            _form("{}.replace({}, {})", text, text, text), _form("{}.substring({})", text, whole), _form("string({})", time),
            _form("[{}, {}].join({})", text, text, text), _form("{}.charAt({})", text, whole), _form("{}.reverse()", text),
            _form("{}.replace({}, {}, {})", text, text, text, whole), _form("{}.split({}, {}).join('|')", text, text, whole),
        ],
        "int": [
            _binary("+ - * / %", whole, whole), _form("-({})", whole), _form("size({})", text), _form("int({})", number),
            _form("int({})", text), _form("{}.getHours()", time), _form("{}.getMinutes()", length), _form("int({})", time),
            _form("{}.indexOf({})", text, text), _form("{}.indexOf({}, {})", text, text, whole),
            _form("{}.lastIndexOf({}, {})", text, text, whole), _form("{}.getHours('-02:30')", time),
            _form("numbers.map(x, x + {})[0]", whole), _form("numbers.filter(x, x > {}).size()", whole),
        ],
        "float": [_binary("+ - * /", number, number), _form("double({})", whole), _form("-({})", number)],
        "bool": [
            _binary("== != < <= > >=", whole, whole), _binary("== != < <= > >=", text, text), _binary("&& ||", truth, truth),
            _binary("== != < <= > >=", number, number), _binary("== != < <= > >=", time, time), _form("!({})", truth),
            _binary("== != < <= > >=", length, length), _form("{}.contains({})", text, text), _form("{} in numbers", whole),
            _form("{}.startsWith({})", text, text), _form("{} in [{}, {}]", text, text, text),
            _form("numbers.all(x, x < {})", whole), _form("numbers.exists(x, 1 / (x - {}) > 0)", whole),
            _form("dyn({}) == {}", whole, number), _form("dyn({}) < {}", number, whole), _form("dyn({}) == dyn({})", text, whole),
        ],
        "time": [_binary("+ -", time, length), _form("timestamp({})", text)],
        "duration": [_binary("+ -", length, length), _binary("-", time, time)],
    }  # fmt: skip
    if of_two:
        for name, more in _of_two(text, whole, truth).items():
            forms[name] += more
    return {
        name: st.one_of(leaves[name], *found, _form("({} ? {} : {})", truth, below[name], below[name]))
        for name, found in forms.items()
    }


def _of_two(text: Texts, whole: Texts, truth: Texts) -> dict[str, list[Texts]]:
    """Macros of two variables, over lists and maps with and without a type."""
    return {
        "string": [
            _form("tags.transformList(i, t, t + string(i) + {}).join('|')", text),
            _form("headers.transformMap(k, v, k + v + {})['x-kind']", text),
            _form("headers.transformList(k, v, k != {}, k + v).join({})", text, text),
        ],
        "int": [
            _form("numbers.transformList(i, n, n > {}, n + i)[0]", whole),
            _form("payload.items.transformList(i, item, item.n * i + {})[1]", whole),
            _form("size(headers.transformMap(k, v, v != {}, {}))", text, whole),
        ],
        "bool": [
            _form("numbers.all(i, n, n + i < {})", whole), _form("numbers.exists(i, n, 1 / (n - {}) > i)", whole),
            _form("numbers.existsOne(i, n, n - i == {} || {})", whole, truth), _form("headers.exists(k, v, k + v == {})", text),
            _form("payload.all(k, v, k != {})", text), _form("payload.items.exists(i, item, item.sku == {} && i < 2)", text),
            _form("payload.deep.exists(k, v, v.est == {})", text),
        ],
    }  # fmt: skip
