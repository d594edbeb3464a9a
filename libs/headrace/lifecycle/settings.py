"""Settings from the environment: declared beside the code that they steer, read here.

A service's settings are one pydantic model whose fields are groups, and
``HEADRACE_<GROUP>__<NAME>`` sets a field of a group. Groups of other services in the
same environment are skipped, since all services of a machine may share one; any other
unknown name stops the start.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from headrace.broker import KafkaConnection, LeaderSettings, checked_servers
from headrace.errors import SetupError
from headrace.wire.topics import NAME_PATTERN, Topics

__all__ = ["GROUPS", "AdminSettings", "BusSettings", "FusedSettings", "read_settings"]

_PREFIX: Final = "HEADRACE_"
_NAME: Final = f"^{NAME_PATTERN.pattern}$"
_MIB: Final = 1024 * 1024

GROUPS: Final = frozenset(
    {
        "admin",
        "admission",
        "bus",
        "delivery",
        "device",
        "files",
        "former",
        "fused",
        "http",
        "limits",
        "log",
        "models",
        "runs",
        "scheduling",
        "worker",
    }
)
"""The groups of all services; a service that reads another one adds it here."""

_OF_COMMANDS: Final = frozenset({"HEADRACE_DEMO_JSON", "HEADRACE_URL"})
"""Names that are no settings of a service."""

Settings = TypeVar("Settings", bound=BaseModel)


class BusSettings(BaseModel, frozen=True, extra="forbid"):
    """The log, and the numbers on which all processes of an installation agree."""

    bootstrap_servers: Annotated[str, AfterValidator(checked_servers)] = (
        "127.0.0.1:9092"
    )
    """Brokers to begin with, ``host:port``, separated by commas."""

    prefix: str = Field(default="headrace", pattern=r"^[a-z0-9][a-z0-9.-]{0,99}$")
    """How every topic's and group's name begins: one for each platform of a Kafka."""

    pool: str = Field(default="default", pattern=_NAME)
    """Workers that serve the same models, and the formers that send to them."""

    cell: str = Field(default="default", pattern=_NAME)
    """The ingresses of one region."""

    lanes: PositiveInt = 1
    """Shards of the pool's traffic. It can be raised, never lowered."""

    worker_slots: PositiveInt = 16
    """Partitions of ``batches``: most workers of the pool."""

    ingress_slots: PositiveInt = 16
    """Partitions of ``replies``: at least twice the ingresses of the cell."""

    history_hours: PositiveInt = 72
    """How far back requests, completions and replies can be read."""

    history_bytes: PositiveInt | None = None
    """The same in bytes per partition, whichever is reached first; None: no limit."""

    key_memory_s: PositiveInt = 600
    """How long an idempotency key is remembered after its request has ended; later,
    the same key runs anew."""

    payload_bytes_max: PositiveInt = _MIB
    """Largest request and largest reply in a record; a larger one travels through
    `payload_store`, or is refused without one: `too_large`."""

    payload_store: str | None = None
    """Where larger ones lie, any URL of fsspec that all processes reach, such as
    ``file:///mnt/payloads`` or ``s3://bucket/payloads``; None: nowhere."""

    payload_store_bytes_max: PositiveInt = 64 * _MIB
    """Largest request and largest reply in the store; a larger one is refused:
    `too_large`."""

    payload_keep_hours: PositiveInt = 360
    """How long objects lie in the store before the ingresses delete them. Longer than
    every record that names one: history, results (7 days) and dead letters (14)."""

    payload_timeout_ms: PositiveInt = 5000
    """Longest that a batch waits for its objects, and no longer than four fifths of its
    members' time; other batches run meanwhile, and those that are not there then count
    as an attempt of their requests. A call to the store that takes longer hangs: its
    thread is replaced, up to 16 in a process, and then nothing more is asked of the
    store until one returns."""

    batch_bytes_max: PositiveInt = 16 * _MIB
    """Largest batch and reply record; a batch is closed before it passes this."""

    session_ms: PositiveInt = 6000
    """After this long without a sign of life a batch former loses its lanes. The
    broker's ``group.min.session.timeout.ms`` is its lower limit."""

    @model_validator(mode="after")
    def _one_request_fits(self) -> BusSettings:
        if self.batch_bytes_max < self.payload_bytes_max:
            raise ValueError(
                f"batch_bytes_max ({self.batch_bytes_max}) must be at least "
                f"payload_bytes_max ({self.payload_bytes_max}), so that a batch can "
                f"hold any request"
            )
        return self

    @model_validator(mode="after")
    def _store_holds_more_and_longer(self) -> BusSettings:
        if self.payload_store is None:
            return self
        if self.payload_store_bytes_max < self.payload_bytes_max:
            raise ValueError(
                f"payload_store_bytes_max ({self.payload_store_bytes_max}) must be at "
                f"least payload_bytes_max ({self.payload_bytes_max})"
            )
        if self.payload_keep_hours <= self.history_hours:
            raise ValueError(
                f"payload_keep_hours ({self.payload_keep_hours}) must be more than "
                f"history_hours ({self.history_hours}): a record would outlive what it "
                "names"
            )
        return self

    @property
    def stored_bytes_max(self) -> int:
        """Largest payload in the store; 0: there is none."""
        return 0 if self.payload_store is None else self.payload_store_bytes_max

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix, self.pool, self.cell)

    @property
    def leader(self) -> LeaderSettings:
        return LeaderSettings(self.session_ms)

    def connection(self, client_id: str) -> KafkaConnection:
        return KafkaConnection(self.bootstrap_servers, client_id, self.batch_bytes_max)


class AdminSettings(BaseModel, frozen=True, extra="forbid"):
    """Where a service without HTTP of its own answers ``/livez /readyz /metrics``."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = Field(default=0, ge=0, le=65_535)
    """0: any free port; the log says which."""


class FusedSettings(BaseModel, frozen=True, extra="forbid"):
    """Batches that go from former to worker without the log, where both run on one
    machine (ARCHITECTURE.md, "A batch may skip the log")."""

    folder: Path | None = None
    """Where workers listen for the batch formers beside them: a folder of this user's
    alone, the same for all processes of a machine; None: every batch goes through the
    log."""


def read_settings(settings: type[Settings], environ: Mapping[str, str]) -> Settings:
    """The settings that ``environ`` gives, defaults for the rest.

    Raises SetupError for a name that is not a setting, and for a value that is
    not one of its kind; the text names the variable and what would be right.
    """
    known = _names(settings)
    values: dict[str, dict[str, object]] = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(_PREFIX) or name in _OF_COMMANDS:
            continue
        if name in known:
            group, field, kind = known[name]
            values.setdefault(group, {})[field] = _value(text, kind)
        elif not _is_of_another_service(name, settings):
            raise SetupError(_unknown(name, known))
    try:
        return settings.model_validate(values)
    except ValidationError as error:
        raise SetupError(_explained(error, environ)) from error


def _value(text: str, kind: object) -> object:
    """A comma separates several values, ``=`` a name from its own."""
    if kind in {tuple, list, frozenset}:
        return text.split(",")
    if kind is Mapping:
        return dict(pair.partition("=")[::2] for pair in text.split(","))
    return text


def _names(settings: type[BaseModel]) -> dict[str, tuple[str, str, object]]:
    """Variable to group, field, and what holds its values if there are several."""
    known: dict[str, tuple[str, str, object]] = {}
    for group, info in settings.model_fields.items():
        assert group in GROUPS, f"name {group!r} in GROUPS"
        kind = info.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, BaseModel)
        for field, inner in kind.model_fields.items():
            several = typing.get_origin(inner.annotation)
            known[_variable(group, field)] = (group, field, several)
    return known


def _variable(group: str, field: str) -> str:
    return f"{_PREFIX}{group}__{field}".upper()


def _is_of_another_service(name: str, settings: type[BaseModel]) -> bool:
    group = name.removeprefix(_PREFIX).partition("__")[0].lower()
    return group in GROUPS - settings.model_fields.keys()


def _unknown(name: str, known: Mapping[str, object]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return f"{name} is not a setting: did you mean {nearest[0]}?"


def _explained(error: ValidationError, environ: Mapping[str, str]) -> str:
    sentences = []
    for one in error.errors(include_url=False):
        name = _variable(*(str(part) for part in (*one["loc"], "", "")[:2]))
        value = environ.get(name)
        text = one["msg"].removeprefix("Value error, ")
        if not one["loc"]:
            sentences.append(text)
        elif value is None:
            sentences.append(f"{'.'.join(map(str, one['loc']))}: {text}")
        else:
            sentences.append(f"{name}={value}: {text}")
    return "; ".join(sentences)
