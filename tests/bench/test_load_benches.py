"""`skep bench overload` and `skep bench encryption` run to their end, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RATIOS = {
    "overload": {
        ratio.format(factor)
        for factor in (1, 8)
        for ratio in ("goodput_{}x_of_no_admission", "accepted_p99_{}x_of_2_seconds")
    },
    "encryption": {
        f"{store}.{ratio}"
        for store in ("sqlite", "postgres")
        for ratio in ("encrypted_of_plain", "encrypted_of_plain_push")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RATIOS))
def test_quick_json_is_one_object_with_every_ratio(name: str) -> None:
    command = [sys.executable, "-m", "bench", name, "--quick", "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=600).stdout)
    assert told["ratios"].keys() == RATIOS[name]
    assert all(ratio > 0 for ratio in told["ratios"].values())
