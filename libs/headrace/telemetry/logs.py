"""One line per event on stderr: JSON for machines, aligned words for people."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Any, Final, cast

import msgspec
from pydantic import BaseModel

from headrace.telemetry.events import Log
from headrace.telemetry.lean import structlog

__all__ = [
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "are_logs_configured",
    "configure_logs",
    "get_log",
]

_LIBRARIES_LEVEL: Final = logging.WARNING


class LogFormat(StrEnum):
    AUTO = "auto"
    """``console`` on a terminal, else ``json``."""

    CONSOLE = "console"
    JSON = "json"
    LOGFMT = "logfmt"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """How much is logged, and in what form."""

    format: LogFormat = LogFormat.AUTO
    """``auto``: ``console`` on a terminal, else ``json``."""

    level: LogLevel = LogLevel.INFO
    """What is less than this is left out."""


def configure_logs(
    settings: LogSettings, *, service: str, slot: int | None = None
) -> None:
    """Call before the first event; the last call counts. Libraries that use
    :mod:`logging` appear as ``library.logged`` from warnings upwards."""
    render, factory = _renderer(settings.format)
    structlog.configure(
        # Filtered by the level first, so that what is not logged costs a comparison.
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.level.upper()]
        ),
        processors=[
            _named(service, slot),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=_LIBRARIES_LEVEL, force=True)


def are_logs_configured() -> bool:
    return structlog.is_configured()


def get_log(**facts: str | int) -> Log:
    """A logger whose events all carry ``facts``. It takes the configuration of its
    first event."""
    return cast(Log, structlog.get_logger(**facts))


def _renderer(
    wanted: LogFormat,
) -> tuple[list[structlog.typing.Processor], structlog.typing.WrappedLogger]:
    if wanted is LogFormat.AUTO:
        wanted = LogFormat.CONSOLE if sys.stderr.isatty() else LogFormat.JSON
    match wanted:
        case LogFormat.JSON:
            render: structlog.typing.Processor = structlog.processors.JSONRenderer(
                serializer=_encode
            )
            return (
                [structlog.processors.format_exc_info, render],
                structlog.BytesLoggerFactory(sys.stderr.buffer),
            )
        case LogFormat.LOGFMT:
            render = structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], drop_missing=True
            )
            return (
                [structlog.processors.format_exc_info, render],
                structlog.WriteLoggerFactory(sys.stderr),
            )
        case _:
            render = structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                # The default one prints local variables: other people's tensors.
                exception_formatter=structlog.dev.plain_traceback,
            )
            return [render], structlog.WriteLoggerFactory(sys.stderr)


def _named(service: str, slot: int | None) -> structlog.typing.Processor:
    def name(
        _logger: Any, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["service"] = service
        if slot is not None:
            event["slot"] = slot
        return event

    return name


def _encode(event: dict[str, Any], default: Any) -> bytes:
    return msgspec.json.encode(event, enc_hook=default)


class _ToStructlog(logging.Handler):
    """Records of :mod:`logging`, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno,
            "library.logged",
            library=record.name,
            text=record.getMessage(),
            exc_info=record.exc_info,
        )
