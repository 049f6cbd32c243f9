"""The settings of a server as structs, and (in `skep.config.load`) where their values come from."""

from skep.config.settings import (
    DEFAULT_PORT,
    MEBIBYTE,
    AccessSettings,
    AdmissionSettings,
    BufferSettings,
    EncryptionSettings,
    EngineSettings,
    HttpLimits,
    Limits,
    LogFormat,
    LogLevel,
    OperationSettings,
    ServerSettings,
    SpoolSettings,
    TelemetrySettings,
)

__all__ = [
    "DEFAULT_PORT",
    "MEBIBYTE",
    "AccessSettings",
    "AdmissionSettings",
    "BufferSettings",
    "EncryptionSettings",
    "EngineSettings",
    "HttpLimits",
    "Limits",
    "LogFormat",
    "LogLevel",
    "OperationSettings",
    "ServerSettings",
    "SpoolSettings",
    "TelemetrySettings",
]
