"""What is wrong, listed up to a limit and counted beyond it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from headrace.audit.events import Asked
from headrace.audit.report import Finding, Kind, Suspect
from headrace.domain import Source

__all__ = ["Findings"]


class Findings:
    """At most ``listed_max`` of each kind, of the suspects, and of the warnings."""

    def __init__(self, listed_max: int) -> None:
        self._listed_max = listed_max
        self._listed: dict[Kind, list[Finding]] = {kind: [] for kind in Kind}
        self._totals = Counter[Kind]()
        self._suspects: list[Suspect] = []
        self._warnings: list[str] = []

    def add(self, kind: Kind, asked: Asked, text: str) -> None:
        self._totals[kind] += 1
        listed = self._listed[kind]
        if len(listed) < self._listed_max:
            listed.append(_finding(kind, asked, text))

    def suspect(self, asked: Asked, first: Source, second: Source) -> None:
        """Two successes of one id have different bytes. Beyond the limit nobody looks
        at what they say, and they count as different."""
        places = " and ".join("/".join(map(str, each)) for each in (first, second))
        if len(self._suspects) < self._listed_max:
            finding = _finding(Kind.DIFFERING, asked, f"{places} differ")
            self._suspects.append(Suspect(finding, first, second))
        else:
            self.add(Kind.DIFFERING, asked, f"{places} have different bytes")

    def suspects(self) -> list[Suspect]:
        return list(self._suspects)

    def warn(self, text: str) -> None:
        if len(self._warnings) < self._listed_max:
            self._warnings.append(text)

    def closed(
        self, excused: Collection[Suspect]
    ) -> tuple[dict[Kind, int], list[Finding], list[str]]:
        """Totals, findings and warnings. An id is accused once, by the first of its
        suspects that is not excused."""
        accused: dict[Source, Finding] = {}
        for suspect in self._suspects:
            if suspect not in excused:
                accused.setdefault(suspect.finding.source, suspect.finding)
        differing = Kind.DIFFERING
        listed = {
            **self._listed,
            differing: [*accused.values(), *self._listed[differing]],
        }
        totals = {kind: self._totals[kind] for kind in Kind}
        totals[differing] += len(accused)
        return (
            totals,
            [each for some in listed.values() for each in some],
            [*self._warnings],
        )


def _finding(kind: Kind, asked: Asked, text: str) -> Finding:
    return Finding(
        kind=kind,
        id=asked.id,
        tenant=asked.tenant,
        model=asked.model,
        source=asked.place,
        asked_us=asked.at_us,
        deadline_us=asked.deadline_us,
        text=text,
    )
