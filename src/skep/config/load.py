"""Where the server's settings come from: flags over `SKEP_*` variables over `skep.toml` over defaults.

This is the one loader. It keeps the origin of each value for `skep config show`. An unknown name is an error that names the nearest
setting, as a misspelt one would silently have no effect.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from skep.config.settings import (
    AccessSettings,
    AdmissionSettings,
    BufferSettings,
    EncryptionSettings,
    EngineSettings,
    HttpLimits,
    Limits,
    OperationSettings,
    ServerSettings,
    SpoolSettings,
    TelemetrySettings,
)
from skep.errors import Code, SkepError

FILE_NAME = "skep.toml"
FILE_VARIABLE = "SKEP_CONFIG"
PREFIX = "SKEP_"
DEFAULT = "default"
SECTIONS: dict[str, type[Struct]] = {
    "engine": EngineSettings, "limits": Limits, "admission": AdmissionSettings, "operations": OperationSettings,
    "spool": SpoolSettings, "buffer": BufferSettings, "encryption": EncryptionSettings, "http": HttpLimits, "access": AccessSettings,
    "telemetry": TelemetrySettings,
}  # fmt: skip
# Some parts of the engine have sections of their own, and whether a store is shared follows from its URL.
_NOT_TO_BE_SET = {"engine.shared", *(f"engine.{section}" for section in SECTIONS)}
REMOVED = {"spool.segment_bytes": "the spool of a process is one file"}
"""Settings of earlier versions, and why they are gone."""
_MISSPELT = 0.75
_YES, _NO = {"yes", "on"}, {"no", "off"}
MASTER_KEYS = "encryption.master_keys"
HIDDEN = "***"
# Up to the last @, as a password that was not percent-encoded may contain one: better to hide too much than too little.
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):.*@|([?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)
# `user:password@host:port,host:port/database?key=value&key=value`, after the scheme. Nothing may be left over: asyncpg would take a part
# of a password for a port, and its error would name it.
_HOST = r"(?:\[[^\]@/?#]+\]|[^:@/?#\[\],]+)(?::[0-9]*)?"
_POSTGRES_URL = re.compile(
    rf"postgres(?:ql)?://(?P<user>[^@/?#\[\]]*@)?(?:{_HOST}(?:,{_HOST})*)?(?P<database>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)


class ServerSetting(Struct, frozen=True):
    """One setting: its key in the file (``limits.page``), its type, its default, its meaning."""

    key: str
    type: Any
    default: Any
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return variable_of(self.key)


class SettingValue(Struct, frozen=True):
    """The value of a setting, and where it comes from."""

    setting: ServerSetting
    value: Any
    origin: str

    @property
    def is_secret(self) -> bool:
        """Whether the value contains a password or a key."""
        if not isinstance(self.value, str):
            return False
        if self.setting.key == MASTER_KEYS:
            return not self.value.startswith(("file:", "env:", "command:"))
        return without_password(self.value) != self.value

    @property
    def shown(self) -> Any:
        """The value as it may be printed: without secrets."""
        if not isinstance(self.value, str):
            return self.value
        return without_keys(self.value) if self.setting.key == MASTER_KEYS else without_password(self.value)


class Loaded(Struct, frozen=True):
    """The settings, and each of them with its origin."""

    settings: ServerSettings
    values: list[SettingValue]
    secret_file: Path | None = None
    """The settings file, when it contains a password or a key, used or not."""


def variable_of(key: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + key.replace(".", "_").upper()


def all_settings() -> list[ServerSetting]:
    """All settings, in the order of the documentation."""
    found = [setting for setting in _fields("", ServerSettings) if setting.key not in SECTIONS]
    for section, kind in SECTIONS.items():
        found += [setting for setting in _fields(section + ".", kind) if setting.key not in _NOT_TO_BE_SET]
    return found


def _fields(prefix: str, kind: type[Struct]) -> list[ServerSetting]:
    fields = msgspec.structs.fields(kind)
    return [ServerSetting(prefix + f.name, f.type, f.default, _meaning(f.type)) for f in fields]


def _meaning(kind: Any) -> str:
    for part in getattr(kind, "__metadata__", ()):
        if isinstance(part, msgspec.Meta):
            return part.description or ""
    return ""


def load(flags: Mapping[str, object], environ: Mapping[str, str], folder: Path, config: Path | None = None) -> Loaded:
    """Load all settings. ``flags`` are by key; a flag that is None was not given."""
    known = {setting.key: setting for setting in all_settings()}
    values = {key: SettingValue(setting, setting.default, DEFAULT) for key, setting in known.items()}
    named = config or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    of_file = _from_file(known, folder, named)
    values |= of_file
    values |= _from_environment(known, environ)
    values |= _from_flags(known, flags)
    holds_secret = any(value.is_secret for value in of_file.values())
    return Loaded(_assemble(values), list(values.values()), folder / (named or FILE_NAME) if holds_secret else None)


def _assemble(values: Mapping[str, SettingValue]) -> ServerSettings:
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        (sections[section] if dot else top)[name] = value.value
    parts: dict[str, Any] = {
        name: kind(**sections[name]) for name, kind in SECTIONS.items() if kind is not EngineSettings
    }
    of_engine = {name: parts.pop(name) for name in EngineSettings.__struct_fields__ if name in parts}
    return ServerSettings(**top, engine=EngineSettings(**sections["engine"], **of_engine), **parts)


def _from_file(known: Mapping[str, ServerSetting], folder: Path, named: Path | None) -> dict[str, SettingValue]:
    path = folder / (named or FILE_NAME)
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        if named is None:
            return {}
        raise SkepError(Code.INVALID_SETTING, f"there is no file {named}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SkepError(Code.INVALID_SETTING, f"cannot read {path}: {reason}") from None
    origin = str(named or FILE_NAME)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SkepError(Code.INVALID_SETTING, f"{origin} is not TOML: {error}") from None
    given = _flattened(found)
    for key in given:
        if key not in known:
            raise _unknown(origin, key, list(known))
    return {
        key: SettingValue(known[key], _converted(known[key], value, origin), origin) for key, value in given.items()
    }


def _flattened(found: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": part for inner, part in value.items()}
        else:
            flat[name] = value
    return flat


def _from_environment(known: Mapping[str, ServerSetting], environ: Mapping[str, str]) -> dict[str, SettingValue]:
    by_variable = {setting.variable: setting for setting in known.values()}
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE or _is_of_kubernetes(variable, text):
            continue
        setting = by_variable.get(variable)
        if setting is not None:
            values[setting.key] = SettingValue(setting, _read(setting, text, variable), variable)
        elif _is_meant_for_us(variable, list(by_variable)):
            raise _unknown("the environment", variable, list(by_variable))
    return values


def _is_of_kubernetes(variable: str, text: str) -> bool:
    """Beside a service that is called skep, Kubernetes gives every container a SKEP_PORT of this form."""
    return variable == PREFIX + "PORT" and text.startswith("tcp://")


def _is_meant_for_us(variable: str, known: list[str]) -> bool:
    """Whether an unknown variable is probably a misspelt setting, and not of another program whose name begins with Skep."""
    if variable.startswith(tuple(f"{PREFIX}{section.upper()}_" for section in SECTIONS)):
        return True
    names = [name.removeprefix(PREFIX) for name in known]
    return bool(difflib.get_close_matches(variable.removeprefix(PREFIX), names, 1, _MISSPELT))


def _from_flags(known: Mapping[str, ServerSetting], flags: Mapping[str, object]) -> dict[str, SettingValue]:
    values = {}
    for key, value in flags.items():
        if value is None:
            continue
        if key not in known:
            raise _unknown("--set", key, list(known))
        flag = f"--set {key}" if "." in key else "--" + key.replace("_", "-")
        given = _read(known[key], value, flag) if isinstance(value, str) else _converted(known[key], value, flag)
        values[key] = SettingValue(known[key], given, flag)
    return values


def _read(setting: ServerSetting, text: str, origin: str) -> Any:
    """Convert a value that is given as text."""
    lowered = text.strip().lower()
    value: object = True if lowered in _YES else False if lowered in _NO else text
    try:
        return _finite(msgspec.convert(value, setting.type, strict=False))
    except (msgspec.ValidationError, ValueError) as error:
        # For a text setting, a word such as "on" is just text.
        if value is not text:
            return _converted(setting, text, origin)
        raise _unfit(setting, origin, error) from None


def _converted(setting: ServerSetting, value: object, origin: str) -> Any:
    try:
        return _finite(msgspec.convert(value, setting.type))
    except (msgspec.ValidationError, ValueError) as error:
        raise _unfit(setting, origin, error) from None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value


def _unfit(setting: ServerSetting, origin: str, error: Exception) -> SkepError:
    text = str(error).replace("`", "")
    where = origin if setting.variable == origin or origin.startswith("--") else f"{origin}: {setting.key}"
    return SkepError(Code.INVALID_SETTING, f"{where} is unfit: {text[:1].lower()}{text[1:]}")


def _unknown(origin: str, name: str, known: list[str]) -> SkepError:
    for key, reason in REMOVED.items():
        if name in (key, variable_of(key)):
            message = f"{origin}: the setting {name} was removed, since {reason}; delete it"
            return SkepError(Code.INVALID_SETTING, message)
    nearest = difflib.get_close_matches(name, known, 1, cutoff=0)
    return SkepError(Code.INVALID_SETTING, f"{origin}: there is no setting {name}; the nearest is {nearest[0]}")


def without_keys(source: str) -> str:
    """The source of master keys as it may be printed: without the arguments of a command, and without a key that was put there."""
    kind, _, place = source.partition(":")
    if kind in ("file", "env"):
        return source
    program, *told = place.split() or [""]
    if kind != "command" or not program:
        return HIDDEN
    return f"command:{program} {HIDDEN}" if told else source


def check_postgres_url(url: str) -> None:
    """Raise INVALID_SETTING when a database's URL is malformed. The error repeats nothing of it: any part may be of the password."""
    found = _POSTGRES_URL.fullmatch(url)
    if found is None or not _is_fit(found["user"], found["database"], found["query"]):
        raise SkepError(
            Code.INVALID_SETTING,
            "the store's URL is not of the form postgresql://user:password@host:port/database?key=value, with a number for a port: "
            "percent-encode / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B and ] as %5D in the user and the password, and & as %26 "
            "and # as %23 after the ?",
            setting="store",
        )


def _is_fit(user: str | None, database: str | None, query: str | None) -> bool:
    fields = [field.partition("=") for field in query.split("&")] if query else []
    if not all(name and equals for name, equals, _ in fields):
        return False
    # `name:12/34@host`: a password that begins with digits looks like a port.
    return user is not None or "@" not in (query or "" if database is None else database)


def without_password(url: str) -> str:
    """A store's URL as it may be printed."""
    return _PASSWORD.sub(lambda match: f"{match[1]}:{HIDDEN}@" if match[2] is None else f"{match[2]}{HIDDEN}", url)


def hide_password(text: str, url: str) -> str:
    """A text about a store, without the password of the store's URL."""
    if url == without_password(url):
        return text
    secrets = [match[0] for match in re.finditer(r"(?<=:)[^/@][^@]*(?=@)|(?<=password=)[^&#]*", url, re.IGNORECASE)]
    for secret in (url, *secrets):
        text = text.replace(secret, HIDDEN)
    return text
