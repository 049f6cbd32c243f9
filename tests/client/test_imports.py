"""The client is there where the server is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVER_ONLY = [
    "structlog",
    "rich",
    "apsw",
    "starlette",
    "uvicorn",
    "asyncpg",
    "cyclopts",
    "prometheus_client",
    "skep.engine",
    "skep.http",
]


def loaded_by(program: str) -> set[str]:
    """The modules that a program loads."""
    code = f"{program}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("name", ["Client", "AsyncClient", "SkepError"])
def test_the_client_loads_nothing_of_the_server(name: str) -> None:
    assert not loaded_by(f"import skep; skep.{name}") & set(SERVER_ONLY)


def test_importing_skep_loads_nothing_else() -> None:
    others = {
        name for name in loaded_by("import skep") if name.startswith(("skep.", "msgspec", "pyreqwest", "stamina"))
    }
    assert others == {"skep._lazy"}


def test_a_name_that_is_not_there_is_said_to_be_missing() -> None:
    import skep

    with pytest.raises(AttributeError, match="no attribute 'Clientt'"):
        _ = skep.Clientt  # type: ignore[attr-defined]
