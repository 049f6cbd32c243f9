"""Where the server's settings come from, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from skep.config import EngineSettings, Limits, ServerSettings
from skep.config.load import Loaded, all_settings, check_postgres_url, hide_password, load, without_password
from skep.errors import Code, SkepError


def loaded(folder: Path, file: str | None = None, environ: Mapping[str, str] | None = None, **flags: object) -> Loaded:
    if file is not None:
        (folder / "skep.toml").write_text(file, encoding="utf-8")
    return load(flags, environ or {}, folder)


def origins(found: Loaded) -> dict[str, tuple[object, str]]:
    """What is not a default."""
    return {v.setting.key: (v.value, v.origin) for v in found.values if v.origin != "default"}


def refusal(folder: Path, file: str | None = None, environ: Mapping[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(SkepError) as caught:
        loaded(folder, file, environ, **flags)
    assert caught.value.code is Code.INVALID_SETTING
    return caught.value.message


def test_with_nothing_said_the_defaults_hold(tmp_path: Path) -> None:
    found = loaded(tmp_path)

    assert found.settings == ServerSettings()
    assert {value.origin for value in found.values} == {"default"}


def test_flags_come_before_variables_before_the_file_before_defaults(tmp_path: Path) -> None:
    file = "port = 1\nhost = '::1'\ndrain_seconds = 5\n"

    found = loaded(tmp_path, file, {"SKEP_PORT": "2", "SKEP_HOST": "127.0.0.2"}, port=3)

    assert origins(found) == {
        "port": (3, "--port"),
        "host": ("127.0.0.2", "SKEP_HOST"),
        "drain_seconds": (5.0, "skep.toml"),
    }
    assert (found.settings.port, found.settings.host, found.settings.drain_seconds) == (3, "127.0.0.2", 5.0)


def test_sections_are_set_by_file_variable_and_flag(tmp_path: Path) -> None:
    file = "[engine]\ncreate_queues_on_push = false\n[limits]\npage = 7\n[http]\nbody_bytes = 1000\n"

    found = loaded(tmp_path, file, {"SKEP_HTTP_BODY_BYTES": "2000"}, **{"limits.pop_messages": "9"})

    assert found.settings.http.body_bytes == 2000
    assert found.settings.engine == EngineSettings(create_queues_on_push=False, limits=Limits(page=7, pop_messages=9))
    assert origins(found)["limits.pop_messages"] == (9, "--set limits.pop_messages")


@pytest.mark.parametrize(("text", "meant"), [("on", True), ("YES", True), ("1", True), ("false", False), ("0", False)])
def test_a_switch_can_be_said_in_several_ways(tmp_path: Path, text: str, meant: bool) -> None:
    assert loaded(tmp_path, environ={"SKEP_INSECURE": text}).settings.insecure is meant


def test_a_word_for_a_switch_can_be_a_text_as_well(tmp_path: Path) -> None:
    assert loaded(tmp_path, environ={"SKEP_DATA_FOLDER": "on"}).settings.data_folder == "on"


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("prot = 1", "port"),
        ("[limits]\npages = 1", "limits.page"),
        ("[htpp]\nbody_bytes = 1", "http.body_bytes"),
        ("[http]\nbody_byte = 1", "http.body_bytes"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(tmp_path: Path, file: str, named: str) -> None:
    assert refusal(tmp_path, file).endswith(f"the nearest is {named}")


@pytest.mark.parametrize("key", ["shared", "limits"])
def test_what_the_server_decides_itself_cannot_be_set(tmp_path: Path, key: str) -> None:
    assert "there is no setting" in refusal(tmp_path, f"[engine]\n{key} = 1")


@pytest.mark.parametrize(("variable", "named"), [("SKEP_PROT", "SKEP_PORT"), ("SKEP_LIMITS_PAGES", "SKEP_LIMITS_PAGE")])
def test_a_misspelt_variable_is_an_error_too(tmp_path: Path, variable: str, named: str) -> None:
    assert refusal(tmp_path, environ={variable: "1"}).endswith(f"the nearest is {named}")


def test_a_setting_that_was_removed_is_an_error_with_its_reason(tmp_path: Path) -> None:
    told = "was removed, since the spool of a process is one file; delete it"

    flag = refusal(tmp_path, None, None, **{"spool.segment_bytes": "1"})
    variable = refusal(tmp_path, environ={"SKEP_SPOOL_SEGMENT_BYTES": "1"})
    file = refusal(tmp_path, "[spool]\nsegment_bytes = 1\n")

    assert file == f"skep.toml: the setting spool.segment_bytes {told}"
    assert variable == f"the environment: the setting SKEP_SPOOL_SEGMENT_BYTES {told}"
    assert flag == f"--set: the setting spool.segment_bytes {told}"


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    others = {"SKEP_PYTHON": "python3", "SKEP_URL": "http://a", "SKEP_PORT": "tcp://10.0.0.1:6632"}

    assert origins(loaded(tmp_path, environ=others)) == {}


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("port = 70000", "skep.toml: port is unfit: expected int <= 65535"),
        ("port = 'x'", "skep.toml: port is unfit: expected int, got str"),
        ("drain_seconds = inf", "skep.toml: drain_seconds is unfit: expected a finite number"),
        ("[limits]\npage = 0", "skep.toml: limits.page is unfit: expected int >= 1"),
        ("log_level = 'loud'", "skep.toml: log_level is unfit: invalid enum value 'loud'"),
        ("port", "skep.toml is not TOML"),
    ],
)
def test_an_unfit_value_is_told_with_its_place(tmp_path: Path, file: str, said: str) -> None:
    assert refusal(tmp_path, file).startswith(said)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    assert refusal(tmp_path, environ={"SKEP_CONFIG": "other.toml"}) == "there is no file other.toml"
    (tmp_path / "other.toml").write_text("port = 5")
    assert origins(loaded(tmp_path, environ={"SKEP_CONFIG": "other.toml"})) == {"port": (5, "other.toml")}
    assert origins(load({}, {}, Path("/"), tmp_path / "other.toml"))["port"][0] == 5


def test_every_setting_says_what_it_means() -> None:
    assert [setting.key for setting in all_settings() if not setting.meaning] == []


def test_no_two_settings_share_a_variable() -> None:
    variables = [setting.variable for setting in all_settings()]
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@host/db",
        "postgresql://me:s3cret@/@host/db",
        "postgres://:s3cret@host",
        "postgresql://host/db?user=me&password=s3cret&x=y",
        "postgresql:///db?password=s3cret",
    ],
)
def test_a_password_is_never_shown(tmp_path: Path, url: str) -> None:
    [store] = [value for value in loaded(tmp_path, store=url).values if value.setting.key == "store"]

    assert "s3cret" not in str(store.shown)
    assert "s3cret" not in hide_password(f"could not use {url}, for s3cret", url)


def test_a_url_without_password_is_shown_as_it_is() -> None:
    for url in ("orders.db", "/a:b/c.db", "postgresql://me@host:5432/db", "postgresql://host/db?user=me"):
        assert without_password(url) == url
        assert hide_password(f"cannot open {url}", url) == f"cannot open {url}"


@pytest.mark.parametrize(
    "password", ["s3/cret", "s3?cret", "s3#cret", "s3@cret", "s3[cret", "3/cret", "3?a=cret", "3#cret"]
)
def test_a_password_that_is_not_percent_encoded_is_refused_and_nothing_of_it_repeated(password: str) -> None:
    with pytest.raises(SkepError) as refused:
        check_postgres_url(f"postgresql://me:{password}@host/db")

    assert refused.value.code is Code.INVALID_SETTING
    assert "%2F" in refused.value.message
    assert "cret" not in str(refused.value)
    assert "host/db" not in str(refused.value)


@pytest.mark.parametrize(
    "rest", ["me@host:s3cret/db", "host/db?password=s3&cret", "host/db?password=s3#cret", "a,/db", "host/db?=s3cret"]
)
def test_a_url_that_no_database_can_have_is_refused(rest: str) -> None:
    with pytest.raises(SkepError) as refused:
        check_postgres_url(f"postgresql://{rest}")

    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "rest",
    [
        "", "/db", "host", "host:5432/db", "me@host/db", "me:s3%2Fcret@host:5432/db", "me:a:b@host/db", "me@/db?host=/tmp/run",
        "%2Ftmp%2Frun/db", "a:1,b:2,[::1]:3/db?target_session_attrs=primary", "[::1]/db", "host/db?user=me@corp&password=s3cret",
        "me@host/d@b", "host:/db", ":s3cret@host", "host/db?", "host/db?options=-csearch_path=x",
    ],
)  # fmt: skip
def test_urls_of_databases_are_taken(rest: str) -> None:
    for scheme in ("postgresql", "postgres"):
        check_postgres_url(f"{scheme}://{rest}")
