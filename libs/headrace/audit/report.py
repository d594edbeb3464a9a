"""What an audit found, as it is printed."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headrace.domain import Source

__all__ = ["Counts", "Finding", "Kind", "Report", "Suspect"]


class Kind(StrEnum):
    """What can be wrong with an id."""

    UNANSWERED = "unanswered"
    """No evidence, although its deadline and 250 ms are over."""
    DIFFERING = "differing"
    """Two successes that say different things."""
    LATE = "late"
    """Its first answer came later than that, and nobody is known to have ended it in
    time; or an error stands beside a success."""
    COMMITTED_PAST = "committed_past"
    """The lane group committed an offset above it while it had no evidence."""


class Finding(msgspec.Struct, frozen=True):
    kind: Kind
    id: str
    tenant: str
    model: str
    source: Source
    asked_us: int
    deadline_us: int | None
    text: str


class Suspect(msgspec.Struct, frozen=True):
    """Two successes of one id with different bytes, and where they lie."""

    finding: Finding
    first: Source
    second: Source


class Counts(msgspec.Struct):
    """Of the requests in the range; each in as many as apply to it."""

    requests: int = 0
    repeated: int = 0
    """Further records of an identity, which end with the first."""

    redriven: int = 0
    successes: int = 0
    """Ids whose first answer is a success."""

    refusals: dict[str, int] = {}
    """Ids whose first answer is an error, by its reason."""

    overtaken: int = 0
    """Ids whose first answer came later than their deadline, by which the ingress where
    they waited, which ran all the time, had answered 504 by itself. Nobody saw it."""

    dead_letters: dict[str, int] = {}
    cancelled: int = 0
    stale: int = 0
    stale_ranges: int = 0
    silent: int = 0
    """Run for somebody who wanted no answer."""

    answers_gone: int = 0
    """To be answered to a topic that was deleted since, as a replay's is when it ends,
    and not known to have ended otherwise: no finding is made of them."""

    duplicates: int = 0
    """Answers after the first."""

    rounded: int = 0
    """Of these: successes that differ by the rounding of floating point alone."""

    unknown: int = 0
    """Evidence for nothing in the range: of older requests, or of other models."""

    pending: int = 0
    """Without evidence, with time left or without a deadline."""

    unjudged: int = 0
    """Without evidence, but retention has removed a part of where it might lie."""

    forgotten: int = 0
    """Settled ids that were forgotten early; a second answer to them is unknown."""

    commits: int = 0
    commits_back: int = 0


class Report(msgspec.Struct, frozen=True):
    """``from_us`` to ``to_us``: the range of requests that was judged;
    ``read_to_us``: how far the log was read for their ends."""

    from_us: int
    to_us: int
    read_to_us: int
    counts: Counts
    totals: dict[Kind, int]
    findings: list[Finding]
    """At most ``findings_max`` of each kind; ``totals`` counts all."""

    warnings: list[str]
    is_truncated: bool
    """The range ended early, at the limit of unsettled requests."""

    @property
    def is_clean(self) -> bool:
        return not self.is_truncated and not any(self.totals.values())
