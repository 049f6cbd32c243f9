"""An install without extras says what is missing and how to get it, and prints nothing into a program's own output."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from skep.server.doctor.machine import EXTRAS, extras

ROOT = Path(__file__).resolve().parents[2]
BARE = """
import sys
for name in ("jinja2", "markupsafe"):
    sys.modules[name] = None
"""
"""As if these were not installed: importing them is a ModuleNotFoundError."""
SAMPLE = (
    BARE
    + """
import json
from http.client import HTTPConnection
from skep.testing.server import running_server

with running_server() as server:
    connection = HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/", headers={"Accept": "text/html"})
    response = connection.getresponse()
    error = json.loads(response.read())["error"]
    connection.close()
print(response.status, error["code"])
print(error["message"])
"""
)


def test_without_the_dashboard_a_sample_prints_its_own_output_and_the_root_says_the_cure(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip

    assert (run.returncode, run.stderr) == (0, "")
    first, told, *more = run.stdout.splitlines()
    assert (first, more) == ("404 ROUTE_NOT_FOUND", [])
    assert "pip install 'skep[dashboard]'" in told


def test_without_arrow_a_pop_and_a_read_of_columns_say_the_cure_and_lease_nothing(tmp_path: Path) -> None:
    sample = """
import sys
sys.modules["pyarrow"] = None
import skep
from http.client import HTTPConnection
from skep.testing.server import running_server

with running_server() as server:
    connection = HTTPConnection("127.0.0.1", server.port)
    with skep.Client(server.url) as client:
        client.push("orders", 1)
        for method, path in (("POST", "/api/v1/pop/queue/orders?autoAck=true"), ("GET", "/api/v1/log/orders")):
            connection.request(method, path, headers={"Accept": "application/vnd.apache.arrow.stream"})
            response = connection.getresponse()
            print(response.status, "pip install 'skep[arrow]'" in response.read().decode())
        print([(one.json(), one.attempt) for one in client.pop("orders")])
    connection.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", sample], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert (run.stdout.splitlines(), run.stderr) == (["415 True", "415 True", "[(1, 1)]"], "")


def test_without_the_dashboard_the_server_says_so_in_its_log(tmp_path: Path) -> None:
    text = (
        BARE + "from skep.cli import main\nsys.argv = ['skep', 'serve', '--port', '0', '--log-format', 'json']\nmain()"
    )
    server = subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        assert any("no dashboard: it needs the extra" in line for line in server.stderr)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_doctor_names_every_extra_and_how_to_get_it() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert {*EXTRAS} == declared.keys() - {"all"}
    assert [one.check for one in extras()] == [f"extra {name}" for name in EXTRAS]
    assert {one.state for one in extras()} <= {"ok", "info"}


def test_doctor_says_what_a_missing_extra_is_for() -> None:
    text = (
        BARE
        + "from skep.server.doctor.machine import extras\nprint([one.hint for one in extras() if one.check == 'extra dashboard'])"
    )
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert "for the dashboard: pip install 'skep[dashboard]'" in run.stdout, run.stderr
