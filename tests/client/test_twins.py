"""The client for threads is what the client for asyncio says, without the waiting words."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def twins() -> ModuleType:
    spec = importlib.util.spec_from_file_location("twins", ROOT / "dev" / "twins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_clients_are_twins() -> None:
    module = twins()
    assert module.SOURCES
    for source in module.SOURCES:
        written = module.twin_of(source).read_text(encoding="utf-8")
        assert written == module.translated(source), f"run python dev/twins.py: {source.name} has changed"
