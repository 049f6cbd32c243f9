"""What people are told about typical mistakes, word by word."""

from __future__ import annotations

from textwrap import dedent

import pytest

from skep.spec import check
from tests.spec.incidents import INCIDENTS

SHOP = """\
app Shop {
  queue Orders {
    message_type {
      id: string
      total: float
      state: enum(new, paid)
      tags: list<string>
      at: time
    }
    key: id
    then: queue Mails { to: id }
  }
  queue Mails {
    message_type { to: string }
  }
}
"""

MISTAKES = {
    "a setting misspelt": (
        INCIDENTS, "max_attempts: 5", "max_atempts: 5",
        """\
        shop.skep:19:7: error: there is no 'max_atempts' in delivery
           19 |       max_atempts: 5
              |       ^ expected max_attempts?
        """,
    ),
    "a word that is not known": (
        INCIDENTS, "ordering: fifo", "ordering: lifo",
        """\
        shop.skep:11:15: error: 'lifo' is not known here
           11 |     ordering: lifo
              |               ^ expected per_key or fifo or unordered
        """,
    ),
    "a queue that is not there": (
        SHOP, "queue Mails { to", "queue Mail { to",
        """\
        shop.skep:11:17: error: there is no queue 'Mail'
           11 |     then: queue Mail { to: id }
              |                 ^ expected Mails?
        """,
    ),
    "a field that is not there": (
        SHOP, "key: id", "key: idd",
        """\
        shop.skep:10:10: error: there is no field 'idd' here
           10 |     key: idd
              |          ^ expected id?
        """,
    ),
    "types that do not go together": (
        SHOP, "{ to: id }", '{ to: id + " for " + total }',
        """\
        shop.skep:11:42: error: + does not work with string and float
           11 |     then: queue Mails { to: id + " for " + total }
              |                                          ^ expected string and string
        """,
    ),
    "a result of the wrong type": (
        SHOP, "{ to: id }", "{ to: total }",
        """\
        shop.skep:11:29: error: this is float
           11 |     then: queue Mails { to: total }
              |                             ^ expected string
        """,
    ),
    "a word that the enum has not": (
        SHOP, "key: id", 'key: state == "payed" ? id : "x"',
        """\
        shop.skep:10:19: error: 'payed' is not one of the enum's words
           10 |     key: state == "payed" ? id : "x"
              |                   ^ expected new, paid
        """,
    ),
    "a bracket that is not closed": (
        SHOP, "key: id", "key: string(size(tags)",
        """\
        shop.skep:10:16: error: this ( is not closed
           10 |     key: string(size(tags)
              |                ^ expected a )
        """,
    ),
    "a type that is not there": (
        SHOP, "total: float", "total: decimal",
        """\
        shop.skep:5:14: error: there is no type 'decimal'
            5 |       total: decimal
              |              ^ expected string, int, float, bool, time, json, uuid, enum(a, b), list<T>, map<string, T>, or one of them with ?
        """,
    ),
    "a number out of its range": (
        INCIDENTS, "max_attempts: 5", "max_attempts: 5000000",
        """\
        shop.skep:19:21: error: max_attempts is out of range
           19 |       max_attempts: 5000000
              |                     ^ expected 0 to 1000000
        """,
    ),
    "a queue that buries in itself": (
        INCIDENTS, "dead_letter_queue: IncomingDead", "dead_letter_queue: Incoming",
        """\
        shop.skep:22:26: error: the queue 'Incoming' cannot be its own dead-letter queue
           22 |       dead_letter_queue: Incoming
              |                          ^ expected another queue, or none
        """,
    ),
    "queues in a circle": (
        SHOP, "message_type { to: string }", "message_type { to: string }\n    then: queue Orders {}",
        """\
        shop.skep:15:11: error: the message for Orders is not whole: id, total, state, tags, at are missing
           15 |     then: queue Orders {}
              |           ^ expected id, total, state, tags, at
        shop.skep:15:17: error: messages would go round for ever: Orders → Mails → Orders
           15 |     then: queue Orders {}
              |                 ^ expected a queue outside of this circle
        """,
    ),
    "a webhook that leads nowhere": (
        INCIDENTS, "    queue: Incoming  // not at once\n", "",
        """\
        shop.skep:46:11: error: a webhook has a queue, or a command
           46 |   webhook Alerts {
              |           ^ expected queue: Name, or command: Entity.Command { … }
        """,
    ),
    "a name that is taken": (
        SHOP, "queue Mails {\n", "queue Orders {\n",
        """\
        shop.skep:11:17: error: there is no queue 'Mails'
           11 |     then: queue Mails { to: id }
              |                 ^ expected one of Orders
        shop.skep:13:9: error: there are two of queue 'Orders'
           13 |   queue Orders {
              |         ^ expected another name
        """,
    ),
    "a line that says nothing": (
        SHOP, "    key: id\n", "    key id\n",
        """\
        shop.skep:10:9: error: 'key' stands alone here
           10 |     key id
              |         ^ expected : and a value, or a block { }
        """,
    ),
    "a default of another type": (
        SHOP, "state: enum(new, paid)", "state: enum(new, paid) = old",
        """\
        shop.skep:6:14: error: the default 'old' is not of its type
            6 |       state: enum(new, paid) = old
              |              ^ expected enum(new, paid)
        """,
    ),
    "a block that is not closed": (
        SHOP, "message_type { to: string }\n  }\n}\n", "message_type { to: string\n",
        """\
        shop.skep:1:10: error: the block of 'app' is not closed
            1 | app Shop {
              |          ^ expected a }
        shop.skep:13:15: error: the block of 'queue' is not closed
           13 |   queue Mails {
              |               ^ expected a }
        shop.skep:14:18: error: the block of 'message_type' is not closed
           14 |     message_type { to: string
              |                  ^ expected a }
        """,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "right", "wrong", "told"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_told(text: str, right: str, wrong: str, told: str) -> None:
    assert right in text
    checked = check(text.replace(right, wrong, 1), "shop.skep")
    assert "\n".join(checked.rendered) + "\n" == dedent(told)


def test_all_mistakes_are_told_at_once() -> None:
    text = (
        SHOP.replace("float", "flaot").replace("key: id", "key: idd").replace("queue Mails { to", "queue Mials { too")
    )
    text = text.replace("message_type { to: string }", "ordering: lifo\n    concurency: 2")
    told = [(problem.line, problem.column) for problem in check(text, "shop.skep").problems]
    assert told == [(5, 14), (10, 10), (11, 17), (14, 15), (15, 5)]


def test_a_problem_in_an_expression_over_several_lines_is_at_its_own_line() -> None:
    text = SHOP.replace("key: id", "key: string(\n      size(tags)\n        + totl\n    )")
    (problem,) = check(text, "shop.skep").problems
    assert (problem.line, problem.column) == (12, 11)


VALUE_MISSING = (
    "x.toml: queues.a.key: error: the end does not belong here (expected a value: a field, a literal, a call, a list, "
    "a map or ( ))"
)


def test_toml_is_told_by_path() -> None:
    text = 'name = "x"\n[queues.a]\nkey = "message.x +"\nthen = [{ queue = "b" }]\n[queues.c]\nconcurrency = "two"\n'
    assert check(text, "x.toml").rendered == [
        "x.toml: queues.c: error: expected `int | null`, got `str` - at `$.concurrency`"
    ]
    assert check(text.replace('"two"', "2"), "x.toml").rendered == [
        VALUE_MISSING,
        "x.toml: queues.a.then.0.queue: error: there is no queue 'b' (expected one of a, c)",
    ]
