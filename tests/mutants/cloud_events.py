"""Faults of CloudEvents, in and out."""

from __future__ import annotations

from tests.mutants import Mutant

IN = "tests/http/test_cloud_events.py -k 'not postgres'"
OUT = "tests/worker/test_cloud_events.py -k 'not postgres'"

MUTANTS = [
    Mutant(
        "events: an id counts without its source",
        "wire/cloud_events.py",
        '    plain = f"{source} {id_}"\n',
        '    plain = f"{id_} "\n',
        IN,
    ),
    Mutant(
        "events: a long id is cut",
        "wire/cloud_events.py",
        "HASHED + hashlib.sha256(plain.encode()).hexdigest()",
        "plain[:TRANSACTION_ID_CHARACTERS]",
        IN,
    ),
    Mutant(
        "events: a batch may have an event twice",
        "http/cloud_events.py",
        "        if first.setdefault(key, index) != index:\n",
        "        if first.setdefault(key, index) > index:\n",
        IN,
    ),
    Mutant(
        "events: control characters of attributes are taken",
        "wire/cloud_events.py",
        "        if not is_attribute_text(value):\n",
        "        if value is None:\n",
        IN,
    ),
    Mutant(
        "events: values of headers are decoded until nothing is left to decode",
        "wire/cloud_events.py",
        "    return unquote_to_bytes(text).decode()\n",
        "    return unquote_to_bytes(unquote_to_bytes(text).decode()).decode()\n",
        IN,
    ),
    Mutant(
        "events: no data goes out as null",
        "worker/cloud_events.py",
        'headers.get(NO_DATA) == "none" and message',
        'headers.get(NO_DATA) == "some" and message',
        OUT,
    ),
    Mutant(
        "events: values go out as they are",
        "worker/cloud_events.py",
        "encode_value(value) for name, value in attributes",
        "value for name, value in attributes",
        OUT,
    ),
    Mutant(
        "events: a native message may break an attribute",
        "worker/cloud_events.py",
        "if fault_of({**_SOUND, name: value}) is None",
        "if name",
        OUT,
    ),
]
