"""``headrace tail``: the log as it grows, decoded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from headrace.broker import TopicPartition, follow
from headrace.clock import wall_us
from headrace.replay import Condition
from headrace.wire import Record, TopicKind, Topics
from services.ctl.choosing import Choice
from services.ctl.cluster import reached
from services.ctl.entries import FACTS, Entries, Entry
from services.ctl.following import asked_first
from services.ctl.instants import instant_us, shown
from services.ctl.options import Amount, checked_id

__all__ = ["tail", "wanted_entries"]

Kind = Literal[
    "requests",
    "replies",
    "results",
    "deadletters",
    "batches",
    "completions",
    "status",
    "control",
    "lanes",
]
_KINDS: Sequence[Kind] = ("requests", "replies", "results", "deadletters")
_OF_MODEL = {
    TopicKind.REQUESTS: Topics.requests,
    TopicKind.DEAD_LETTERS: Topics.dead_letters,
}


def tail(  # noqa: PLR0913 - its options
    *kinds: Kind,
    model: str | None = None,
    choice: Annotated[Choice, Parameter(name="*")] = Choice(),  # noqa: B008 - immutable
    name: Annotated[str | None, Parameter(name="--id")] = None,
    from_: Annotated[str, Parameter(name="--from", allow_leading_hyphen=True)] = "now",
    endless: Annotated[bool, Parameter(name="--follow", negative="--no-follow")] = True,
    values: Annotated[bool, Parameter(negative=())] = False,
    limit: Amount | None = None,
    bootstrap: str | None = None,
    data: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Print records as they are appended, decoded, one line each, until Ctrl-C.

    Answers show how long after their request they came, when that was read too. Exit
    status 1: nothing of the request named with --id was there (--no-follow).

    Parameters
    ----------
    kinds
        Topics to read, by the word after the prefix [default: requests replies results
        deadletters].
    model
        Of this model alone.
    name
        Of the request with this id, with the batches that it is in.
    from_
        Where to begin: now, -30m, -2h, or a date and time in UTC.
    endless
        Go on when the end of the log is reached.
    values
        Show the first elements of tensors.
    limit
        End after so many lines.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    as_json
        Print a JSON document per line.
    """
    checked_id(name)
    since_us = instant_us(from_, wall_us(), option="--from")
    conditions = choice.conditions(FACTS)
    if model is not None:
        conditions.append(Condition("model", "=", model))
    connection, topics = reached(bootstrap, data, models=[model] if model else [])
    wanted = frozenset(map(TopicKind, kinds or _KINDS))
    is_wanted = partial(_is_wanted, topics, wanted, model)
    rank = partial(asked_first, topics)
    records = follow(connection, is_wanted, since_us, rank, is_endless=endless)
    entries = Entries(topics, with_values=values)
    chosen = (wanted_entries(entries, each, conditions, name) for each in records)
    count = 0
    for entry in islice(_unbuffered(chosen), limit):
        count += 1
        print(msgspec.json.encode(entry).decode() if as_json else _line(entry))
    return 0 if count else _nothing_since(since_us, name)


def _nothing_since(since_us: int, name: str | None) -> int:
    """Said on stderr: whoever reads lines gets none."""
    what = "no such record" if name is None else f"nothing of {name}"
    print(
        f"The log has {what} since {shown(since_us)}: look further back with --from.",
        file=sys.stderr,
    )
    return int(name is not None)


def _unbuffered(chunks: Iterable[Iterator[Entry]]) -> Iterator[Entry]:
    """Nothing that was printed waits for what comes next."""
    for chunk in chunks:
        yield from chunk
        sys.stdout.flush()


def wanted_entries(
    entries: Entries,
    records: Iterable[Record],
    conditions: Sequence[Condition],
    request_id: str | None = None,
) -> Iterator[Entry]:
    """The entries of these records for which all conditions hold."""
    for record in records:
        for entry in entries.of(record):
            if request_id is not None and request_id not in {entry.id, *entry.members}:
                continue
            facts = entry.facts(record) if conditions else {}
            if all(each.holds(facts) for each in conditions):
                yield entry


def _is_wanted(
    topics: Topics,
    kinds: frozenset[TopicKind],
    model: str | None,
    one: TopicPartition,
) -> bool:
    kind = topics.kind_of(one.topic)
    if kind not in kinds:
        return False
    if model is None or kind not in _OF_MODEL:
        return True
    return one.topic == _OF_MODEL[kind](topics, model)


def _line(entry: Entry) -> str:
    version = f"/{entry.version}" if entry.version else ""
    words = [
        shown(entry.at_us),
        f"{entry.kind:<11}",
        entry.id,
        entry.tenant,
        f"{entry.model}{version}",
        entry.priority,
        "" if entry.rows is None else f"rows={entry.rows}",
        _painted(entry.status) if entry.kind not in {"requests", "status"} else "",
        "" if entry.after_us is None else f"+{entry.after_us / 1000:.0f}ms",
        entry.text,
        *(f"{each.name}={each.first}" for each in entry.tensors),
    ]
    words.append(f"at {entry.place}")
    return "  ".join(filter(None, words))


def _painted(status: str) -> str:
    """What is not well in red, on a terminal."""
    is_well = status in {"", "ok", "ready", "loading"}
    if is_well or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return status
    return f"\x1b[31m{status}\x1b[0m"
