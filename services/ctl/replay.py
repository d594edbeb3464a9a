"""``headrace replay``: recorded requests once more, and what has changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from headrace.broker import KafkaAdmin, KafkaConnection
from headrace.clock import wall_us
from headrace.domain import ServedVersion
from headrace.replay import (
    RECORDED_FACTS,
    Allowed,
    At,
    Bound,
    Gate,
    Selection,
    Verdict,
)
from headrace.wire import Topics
from services.ctl.catalog import served_version
from services.ctl.choosing import Choice
from services.ctl.cluster import check_partition, reached
from services.ctl.errors import UsageError
from services.ctl.instants import instant_us
from services.ctl.options import Amount, usable
from services.ctl.replaying import Task, show_export, show_report

__all__ = ["Manner", "Outcome", "Strictness", "replay"]

_LOOK_UP_S = 10.0
_PLACE = re.compile(r"(?:(?P<topic>.+)/)?(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")
_SPEED = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)x")
_INTO = re.compile(r"(?:(?P<model>[^/]+)/)?(?P<version>[1-9]\d{0,17})")
_Part = Annotated[float | None, Parameter(validator=Number(gte=0, lte=1))]
_Least = Annotated[float | None, Parameter(validator=Number(gte=0))]


@dataclass(frozen=True, kw_only=True)
class Strictness:
    """How much may be different."""

    atol: _Least = None
    """Of outputs of floating point: how far a number may be off [default: as far as
    rounding in another order takes it, by datatype]."""

    rtol: _Least = None
    """The same as a part of the largest number in its row."""

    within: _Part = None
    """Least part of the requests that must be answered within the tolerance
    [default: 1]."""

    agreement: _Part = None
    """Least part of the rows in which each output must choose the same: an output of
    numbers its largest, another its value."""

    @property
    def allowed(self) -> Allowed:
        return Allowed(self.atol, self.rtol)

    @property
    def gate(self) -> Gate:
        return Gate(1.0 if self.within is None else self.within, self.agreement)


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How they are run."""

    into: str | None = None
    """The version that runs them, or MODEL/VERSION of another model with the same
    inputs [default: the version that new requests get]."""

    rate: Annotated[str, Parameter(allow_leading_hyphen=True)] = "max"
    """original (as far apart as they were), 2x (twice as fast), or max (as fast as
    they are run)."""

    limit: Amount | None = None
    """Replay so many at most."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is to come of it."""

    diff: Annotated[bool, Parameter(negative=())] = False
    """Hold the answers against the recorded ones, and write a page with plots."""

    page: Path | None = None
    """Where the page goes, .html or .png [default: replay-MODEL-TIME.html here]."""

    export: Path | None = None
    """Also write a Parquet file, a row for each request, with its tensors as lists.
    Without --into and --diff nothing is run."""

    def pages(self, model: str) -> Path | None:
        """Raises UsageError."""
        page = self.page
        if page is not None and not self.diff:
            raise UsageError("--page shows differences: add --diff.")
        if page is None and self.diff:
            page = Path(f"replay-{model}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.html")
        return None if page is None else _checked(page, ".html", ".png")

    def exports(self) -> Path | None:
        """Raises UsageError."""
        return None if self.export is None else _checked(self.export, ".parquet")


def replay(  # noqa: PLR0913 - its options
    *,
    model: str,
    from_: Annotated[str, Parameter(name="--from", allow_leading_hyphen=True)],
    to: Annotated[str, Parameter(allow_leading_hyphen=True)] = "now",
    choice: Annotated[Choice, Parameter(name="*")] = Choice(),  # noqa: B008 - immutable
    manner: Annotated[Manner, Parameter(name="*")] = Manner(),
    outcome: Annotated[Outcome, Parameter(name="*")] = Outcome(),
    strictness: Annotated[Strictness, Parameter(name="*")] = Strictness(),
    bootstrap: str | None = None,
    data: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Run recorded requests once more, as bulk, and hear the answers here alone.

    With --diff the exit status is the verdict: 0 pass, 1 fail; 2 is wrong usage.

    Parameters
    ----------
    model
        The model that was asked.
    from_
        Begin of the range: -90s, -30m, -1h, -2d, a date and time (UTC unless it says
        otherwise), or PARTITION/OFFSET of the model's request topic.
    to
        End of the range, which is not part of it, likewise.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    as_json
        Print one JSON document.
    """
    task = Task(
        selection=_selection(model, from_, to, choice),
        range=(from_, to),
        speed=_speed(manner.rate),
        limit=manner.limit,
        allowed=strictness.allowed,
        gate=strictness.gate if outcome.diff else None,
        export=outcome.exports(),
        page=outcome.pages(model),
    )
    connection, topics = reached(bootstrap, data, "headrace-replay", models=[model])
    _check_places(connection, topics, task.selection)
    if task.export is not None and manner.into is None and task.gate is None:
        written = task.export_recorded(connection, topics)
        show_export(written, as_json=as_json)
        return 0
    served = _target(connection, topics, model, manner.into)
    report = task.run(connection, topics, served)
    show_report(report, page=task.page, as_json=as_json)
    return int(report.verdict is Verdict.FAIL)


def _target(
    connection: KafkaConnection, topics: Topics, model: str, into: str | None
) -> ServedVersion:
    if into is None:
        return served_version(connection, topics, model)
    found = _INTO.fullmatch(into)
    if found is None:
        raise UsageError(
            f"--into {into} is no version: write VERSION or MODEL/VERSION."
        )
    return served_version(connection, topics, found["model"] or model, found["version"])


def _check_places(
    connection: KafkaConnection, topics: Topics, selection: Selection
) -> None:
    """Raises UsageError."""
    topic = topics.requests(selection.model)
    for bound in (selection.since, selection.until):
        if isinstance(bound, At):
            count = KafkaAdmin(connection).partitions(topic, _LOOK_UP_S)
            check_partition(topic, bound.partition, count)


def _speed(rate: str) -> float | None:
    if rate == "max":
        return None
    if rate == "original":
        return 1.0
    found = _SPEED.fullmatch(rate)
    if found is None or not float(found[1]):
        raise UsageError(f"--rate {rate} is none: write original, max, or 2x.")
    return float(found[1])


def _checked(path: Path, *suffixes: str) -> Path:
    """Refused before the run, not after it."""
    if path.suffix not in suffixes:
        raise UsageError(f"{path} must end with {' or '.join(suffixes)}.")
    with usable("folder", path.parent, "name a file in another one"):
        if not path.parent.is_dir():
            raise UsageError(f"The folder {path.parent} does not exist.")
        return path


def _selection(model: str, since: str, until: str, choice: Choice) -> Selection:
    now_us = wall_us()
    begin = _bound(since, now_us, model, "--from")
    end = _bound(until, now_us, model, "--to")
    is_empty = False
    match begin, end:
        case At(), At():
            is_empty = end.offset <= begin.offset
            if begin.partition != end.partition:
                raise UsageError("--from and --to name places in different partitions.")
        case int(), int():
            is_empty = end <= begin
        case _:
            pass
    if is_empty:
        raise UsageError(f"--to {until} is not after --from {since}.")
    return Selection(model, begin, end, tuple(choice.conditions(RECORDED_FACTS)))


def _bound(text: str, now_us: int, model: str, option: str) -> Bound:
    placed = _PLACE.fullmatch(text)
    if placed is None:
        return instant_us(text, now_us, option=option)
    topic = placed["topic"]
    if topic is not None and topic.rpartition(".requests.")[2] != model:
        raise UsageError(f"{option} {text} is no place of requests to {model}.")
    return At(int(placed["partition"]), int(placed["offset"]))
