"""``headrace deadletters``: what could not be answered, and putting it back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.broker import Delivery, KafkaConnection, KafkaProducer, ProducerSettings
from headrace.clock import wall_us
from headrace.domain import Reason
from headrace.wire import Topics
from services.ctl.cluster import reached
from services.ctl.errors import UsageError
from services.ctl.instants import instant_us, shown
from services.ctl.letters import (
    Fate,
    Letter,
    chosen,
    fates,
    put_back,
    read_letters,
    shown_place,
)
from services.ctl.options import Amount, checked_id
from services.ctl.payload import Payload, payload_of
from services.ctl.wording import counted

__all__ = ["LetterRow", "RedriveRow", "app", "redrive_letters"]

_SEND_MS = 30_000

app = App(name="deadletters", help="What could not be answered, and putting it back.")

Instant = Annotated[str, Parameter(name="--from", allow_leading_hyphen=True)]
Output = Literal["table", "json"]
Models = Annotated[
    Sequence[str], Parameter(name="--model", negative=(), show_default=False)
]
Reasons = Annotated[
    Sequence[Reason], Parameter(name="--reason", negative=(), show_default=False)
]


class LetterRow(msgspec.Struct, frozen=True):
    """One dead letter."""

    id: str
    tenant: str
    model: str
    reason: str
    text: str
    attempts: int
    buried_us: int
    letter: str
    """Topic, partition and offset of the letter."""

    source: str
    """Those of the request."""


class LetterDetails(msgspec.Struct, frozen=True):
    row: LetterRow
    headers: list[tuple[str, str | None]]
    """Of the original record, in order."""

    payload: Payload | None


class RedriveRow(msgspec.Struct, frozen=True):
    """What became of one letter; ``place``: of the record that was sent, or that
    speaks against sending it."""

    id: str
    letter: str
    fate: str
    place: str


@app.command(name="list")
def list_letters(  # noqa: PLR0913 - its options
    *,
    models: Models = (),
    reasons: Reasons = (),
    from_: Instant = "-14d",
    last: Amount = 100,
    bootstrap: str | None = None,
    data: Path | None = None,
    output: Output = "table",
) -> int:
    """List dead letters, the newest last.

    Parameters
    ----------
    models
        Of this model alone; may be repeated.
    reasons
        With this reason alone; may be repeated.
    from_
        Written since: -30m, -2h, -1d, or a date and time in UTC.
    last
        At most so many, the newest.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    since_us = instant_us(from_, wall_us(), option="--from")
    newest: deque[Letter] = deque(maxlen=last)
    count = 0
    cluster = reached(bootstrap, data, models=models)
    letters = read_letters(*cluster, models, since_us)
    for letter in letters:
        if not reasons or letter.letter.reason in reasons:
            count += 1
            newest.append(letter)
    rows = [_row(each) for each in sorted(newest, key=lambda each: each.at_us)]
    if output == "json":
        _print_json(rows)
    elif rows:
        _show_rows(rows)
        if count > len(rows):
            print(f"and {count - len(rows)} older ones (--last)")
    else:
        print("No dead letter.")
    return 0


@app.command
def show(
    name: str,
    /,
    *,
    models: Models = (),
    bootstrap: str | None = None,
    data: Path | None = None,
    output: Output = "table",
) -> int:
    """Show the dead letters of a request: reason, headers, and what was asked.

    Parameters
    ----------
    name
        The request's id, or a letter's topic/partition/offset.
    models
        Look at this model alone; may be repeated.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    checked_id(name)
    letters = read_letters(*reached(bootstrap, data, models=models), models, 0)
    found = [
        LetterDetails(
            _row(each),
            [
                (header, None if value is None else value.decode(errors="replace"))
                for header, value in each.buried.headers
            ],
            payload_of(each.buried.value),
        )
        for each in letters
        if name in {each.letter.id, shown_place(each.place)}
    ]
    if output == "json":
        _print_json(found)
    for details in found if output == "table" else ():
        _show_details(details)
    if not found and output == "table":
        print(f"There is no dead letter of {name}.")
    return 0 if found else 1


@app.command
def redrive(
    *wanted: str,
    models: Models = (),
    force: Annotated[bool, Parameter(negative=())] = False,
    bootstrap: str | None = None,
    data: Path | None = None,
    output: Output = "table",
) -> int:
    """Put requests back where they were, with the same id.

    A request that has a success, or was put back since, is not sent again. Exit
    status 1: one was not found, or cannot be sent.

    Parameters
    ----------
    wanted
        Ids of requests, or topic/partition/offset of letters.
    models
        Look at this model alone; may be repeated.
    force
        Send it although it has a success or was put back since.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    if not wanted:
        raise UsageError("name at least one request: `headrace deadletters list`.")
    for name in wanted:
        checked_id(name)
    connection, topics = reached(bootstrap, data, models=models)
    letters = list(read_letters(connection, topics, models, 0))
    rows, picked = _picked(letters, wanted)
    rows += redrive_letters(connection, topics, picked, force=force)
    if output == "json":
        _print_json(rows)
    else:
        for row in rows:
            print(f"{row.id or row.letter}: {_FATES[row.fate].format(row.place)}")
    return int(any(row.fate in {_UNKNOWN, Fate.EMPTY} for row in rows))


_UNKNOWN = "unknown"
_FATES: dict[str, str] = {
    Fate.SENT: "put back at {}",
    Fate.ANSWERED: "not sent, since it has a success at {} (--force sends it)",
    Fate.REDRIVEN: "not sent, since it was put back at {} (--force sends it)",
    Fate.EMPTY: "there is nothing to send: {}",
    _UNKNOWN: "there is no such dead letter",
}


def redrive_letters(
    connection: KafkaConnection,
    topics: Topics,
    letters: Sequence[Letter],
    *,
    force: bool = False,
) -> list[RedriveRow]:
    """Put back those against which nothing speaks; all of them acked.

    Raises :class:`headrace.errors.BusError`.
    """
    against = fates(connection, topics, letters)
    rows = []
    producer = KafkaProducer(connection, ProducerSettings(timeout_ms=_SEND_MS))
    for letter in letters:
        fate, place = against.get(letter.place, (Fate.SENT, ""))
        if fate is Fate.SENT or (force and fate is not Fate.EMPTY):
            fate, place = Fate.SENT, _send(producer, letter)
        rows.append(
            RedriveRow(letter.letter.id, shown_place(letter.place), fate, place)
        )
    return rows


def _send(producer: KafkaProducer, letter: Letter) -> str:
    topic, partition, _ = letter.letter.source
    key, headers, value = put_back(letter)
    ended: list[Delivery] = []
    producer.produce(
        topic, partition, value, key=key, headers=headers, on_delivery=ended.append
    )
    while not ended:
        producer.poll(0.1)
    (delivery,) = ended
    if delivery.error is not None:
        raise delivery.error
    return f"{topic}/{partition}/{delivery.offset}"


def _picked(
    letters: Sequence[Letter], wanted: Sequence[str]
) -> tuple[list[RedriveRow], list[Letter]]:
    """Rows for what is not there, and one letter for each name that is."""
    missing = []
    picked = []
    for name in dict.fromkeys(wanted):
        found = chosen(letters, name)
        if len(found) > 1:
            places = ", ".join(shown_place(each.place) for each in found)
            raise UsageError(f"{name} is the id of {len(found)} requests: {places}.")
        if not found:
            missing.append(RedriveRow(name, "", _UNKNOWN, ""))
        picked += [each for each in found if each not in picked]
    return missing, picked


def _row(letter: Letter) -> LetterRow:
    known = letter.letter
    return LetterRow(
        id=known.id,
        tenant=known.tenant,
        model=known.model,
        reason=known.reason,
        text=known.text,
        attempts=known.attempts,
        buried_us=letter.at_us,
        letter=shown_place(letter.place),
        source=shown_place(known.source),
    )


def _show_rows(rows: Sequence[LetterRow]) -> None:
    """In lines, not columns: an id, a place and a sentence do not fit side by side."""
    console = Console(highlight=False)
    for row in rows:
        tries = counted(row.attempts, "attempt")
        head = Text(f"{shown(row.buried_us)}  {row.id}", style="bold")
        told = Text(f"    {row.model}: {row.reason} after {tries}")
        for line in (head, told, Text(f"    {row.text}"), Text(f"    {row.letter}")):
            console.print(line, soft_wrap=True)


def _show_details(details: LetterDetails) -> None:
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in msgspec.structs.asdict(details.row).items():
        if name == "buried_us":
            table.add_row("time", shown(value))
        else:
            table.add_row(name, str(value))
    for header, text in details.headers:
        table.add_row(f"header {header}", "" if text is None else text)
    payload = details.payload
    if payload is None:
        table.add_row("value", "none")
    else:
        table.add_row("value", f"{payload.size_bytes} bytes {payload.begins}")
        for each in payload.inputs:
            table.add_row(
                f"input {each.name}", f"{each.datatype} {each.shape}: {each.first}"
            )
    Console().print(table)


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
