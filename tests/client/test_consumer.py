"""Who asks: what a client says of itself with each pop."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import skep
from skep.client.consumer import HEADER_BYTES, _written, consumer_header
from skep.client.settings import client_settings
from skep.spec import load
from skep.worker.working import Working, WorkOptions
from tests.client.scripted import ScriptedServer, problem, reply

FORM = re.compile(r'name="([^"]*)", host="([^"]*)", version="([^"]*)", pid="(\d+)"')


def read(header: str) -> tuple[str, ...]:
    found = FORM.fullmatch(header)
    assert found is not None, header
    return tuple(unquote(part) for part in found.groups())


def test_each_pop_says_name_host_version_and_pid_and_nothing_else_does() -> None:
    with ScriptedServer(reply(204)) as server, skep.Client(server.url, client_name="mailer") as client:
        client.pop("orders")
        client.pop_matching(namespace="shop")
        client.queue("orders").pop(wait_seconds=1)
        client.for_tenant("acme").pop("orders")
        client.request("POST", "/api/v1/ack/batch", body={})

    *pops, other = [request.headers.get("skep-consumer") for request in server.requests]
    assert len(pops) == 4
    for header in pops:
        assert read(header or "") == ("mailer", socket.gethostname(), skep.__version__, str(os.getpid()))
    assert other is None


@pytest.mark.parametrize("kind", ["worker", "app"])
async def test_the_pops_of_workers_say_it_too(kind: str) -> None:
    # a refusal that no retry mends ends the worker
    with ScriptedServer(problem(403, "FORBIDDEN")) as server:
        if kind == "worker":
            worker = skep.Worker(server.url, client_name="till")
            worker.on("orders")(lambda message: None)
            with pytest.raises(skep.SkepError):
                await worker.run_async()
        else:
            app = load('app Till { queue orders { deliver: "http://127.0.0.1:1/" } }', "till.skep")
            server.tell(problem(404, "APP_NOT_FOUND"), reply(200, {"endpoints": []}), problem(403, "FORBIDDEN"))
            with pytest.raises(skep.SkepError):
                await Working(app, {}, client_settings(server.url, {}), WorkOptions()).run()

    said = {read(request.headers["skep-consumer"])[0] for request in server.requests if "/pop" in request.target}
    assert said == {"till" if kind == "worker" else "Till"}


@pytest.mark.parametrize(
    "name", ["mailer", 'a"b, c', "ü" * 500, "\n\r\0", os.fsdecode(b"\xff"), "名" * 40, "x" * 500, "%"]
)
@pytest.mark.parametrize("host", ["web-3", "h" * 253, "ü" * 253])
def test_the_header_is_bounded_and_whole_whatever_the_names_are(name: str, host: str) -> None:
    header = _written(name, host, "1.2.3.dev4+local", 4_194_304)

    assert len(header.encode("ascii")) <= HEADER_BYTES
    said, at, version, pid = read(header)
    assert (version, pid) == ("1.2.3.dev4+local", "4194304")
    assert name.encode("utf-8", "replace").decode().startswith(said) or said == "?"
    assert host.startswith(at)
    assert said
    assert at


def test_a_client_without_a_name_has_the_programs(tmp_path: Path) -> None:
    code = "from skep.client.consumer import program_name; print(program_name())"
    (tmp_path / "mailer.py").write_text(code)

    def printed(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])},
        )  # fmt: skip
        return ran.stdout.strip()

    assert printed("mailer.py") == "mailer.py"
    assert printed("-m", "mailer") == "mailer"
    assert printed("-c", code) == "python"


def test_a_forked_process_says_its_own_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(consumer_header("mailer"))[3]
    monkeypatch.setattr(os, "getpid", lambda: 77)

    assert before == read(consumer_header("mailer"))[3] or before != "77"
    assert read(consumer_header("mailer"))[3] == "77"
