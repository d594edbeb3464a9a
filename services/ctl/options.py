"""Kinds of options that several commands take, and what each refuses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter, Token, convert
from cyclopts.validators import Number

from headrace.broker import checked_servers
from services.ctl.errors import UsageError

__all__ = [
    "PORT_MAX",
    "Amount",
    "Port",
    "Processes",
    "checked_bootstrap",
    "checked_id",
    "checked_url",
    "usable",
    "whole",
    "writable_folder",
]

PORT_MAX = 65_535
_PROCESSES_MAX = 256


def whole(kind: Any, tokens: Sequence[Token]) -> Any:
    """A number without a fraction, which would be rounded without a word. Raises
    ValueError."""
    text = tokens[0].value
    if "." in text:
        raise ValueError(f'"{text}" is no whole number')
    return convert(kind, tokens)


def _number(least: int, most: int | None = None) -> Parameter:
    return Parameter(converter=whole, validator=Number(gte=least, lte=most))


Amount = Annotated[int, _number(1)]
Port = Annotated[int, _number(0, PORT_MAX)]
Processes = Annotated[int, _number(1, _PROCESSES_MAX)]
"""Of one service on this machine."""


def checked_id(name: str | None) -> None:
    """Raises UsageError for one that is empty."""
    if name is not None and not name.strip():
        raise UsageError("an id is needed, and this one is empty.")


def checked_bootstrap(text: str, *, source: str) -> str:
    """Addresses of a Kafka. Raises UsageError, naming ``source``."""
    try:
        return checked_servers(text)
    except ValueError as error:
        raise UsageError(f"{source}: {error}.") from error


def checked_url(text: str, *, source: str) -> str:
    """A base address of HTTP without a slash at its end; ``host:port`` alone is taken
    for http. Raises UsageError, naming ``source``."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in {"http", "https"} and bool(parts.hostname)
        is_good = is_http and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        raise UsageError(f"{source} {text!r} is no address: write http://HOST:PORT.")
    return url.rstrip("/")


def writable_folder(what: str, folder: Path, remedy: str) -> Path:
    """``folder`` made and tried, as an absolute path; raises as :func:`usable`."""
    with usable(what, folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder.absolute()


@contextmanager
def usable(what: str, place: str | Path, remedy: str) -> Iterator[None]:
    """Raises UsageError for what the system says of a file or folder."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"The {what} {place} cannot be used ({error.strerror}): {remedy}."
        ) from error
