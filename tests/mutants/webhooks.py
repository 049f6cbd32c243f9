"""Faults of webhooks: their signatures and the window of replays."""

from __future__ import annotations

from tests.mutants import Mutant

SIGNATURES = "tests/webhooks/test_signatures.py"
SENDERS = "tests/webhooks/test_senders.py -k 'not postgres'"

MUTANTS = [
    Mutant(
        "signatures: any signature matches",
        "webhooks/signatures.py",
        "    matches = False\n",
        "    matches = bool(given)\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: only the first secret counts",
        "webhooks/signatures.py",
        "        for digest in expected:\n",
        "        for digest in expected[:1]:\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: only the first signature of a header counts",
        "webhooks/signatures.py",
        "    for signature in given:\n",
        "    for signature in given[:1]:\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: any number of signatures is compared",
        "webhooks/signatures.py",
        "        if seen > SIGNATURES_MAX:\n",
        "        if seen < 0:\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: the start of a signature is enough",
        "webhooks/signatures.py",
        "        if len(signature) == size:\n            found.append(signature)\n",
        "        found.append(signature.ljust(size, b'\\0'))\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: a version that is not ours counts",
        "webhooks/signatures.py",
        "        if not text.startswith(start):\n            continue\n",
        "",
        SIGNATURES,
    ),
    Mutant(
        "signatures: of a header that comes twice the last counts",
        "webhooks/signatures.py",
        "            if found is not None:\n",
        "            if found == b'':\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: an old request of Stripe is taken",
        "webhooks/signatures.py",
        "        _check_age(_timestamp(times[0], STRIPE_HEADER), now, tolerance_seconds)\n",
        "        _timestamp(times[0], STRIPE_HEADER)\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: an old request of Slack is taken",
        "webhooks/signatures.py",
        "        _check_age(_timestamp(time, SLACK_TIMESTAMP), now, tolerance_seconds)\n",
        "        _timestamp(time, SLACK_TIMESTAMP)\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: an old request of a standard webhook is taken",
        "webhooks/signatures.py",
        "        _check_age(time, now, tolerance_seconds)\n",
        "",
        SIGNATURES,
    ),
    Mutant(
        "signatures: a request from the future is taken",
        "webhooks/signatures.py",
        "    if abs(now - time * MICROS_PER_SECOND) > seconds(tolerance_seconds):\n",
        "    if now - time * MICROS_PER_SECOND > seconds(tolerance_seconds):\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: at the end of its tolerance a request is refused",
        "webhooks/signatures.py",
        "    if abs(now - time * MICROS_PER_SECOND) > seconds(tolerance_seconds):\n",
        "    if abs(now - time * MICROS_PER_SECOND) >= seconds(tolerance_seconds):\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: the time of Stripe is not signed",
        "webhooks/signatures.py",
        '        content = times[0] + b"." + body\n',
        '        content = str(now // 1_000_000).encode() + b"." + body\n',
        SIGNATURES,
    ),
    Mutant(
        "signatures: Stripe may say two times",
        "webhooks/signatures.py",
        "        if len(times) != 1:\n",
        "        if not times:\n",
        SIGNATURES,
    ),
    Mutant(
        "signatures: an id that nobody signed tells repeats",
        "webhooks/signatures.py",
        "        _check_other_ids(headers, raw_id)\n",
        "",
        SENDERS,
    ),
    Mutant(
        "signatures: the headers of Svix are mixed with those of the standard",
        "webhooks/signatures.py",
        '    return svix if f"{svix}signature".encode() in there and f"{standard}signature".encode() not in there else standard\n',
        '    return svix if f"{svix}signature".encode() in there else standard\n',
        SENDERS,
    ),
]
