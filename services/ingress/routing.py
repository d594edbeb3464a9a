"""Which lane takes a request: one whose batch former was heard of lately (D3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.delivery import Roster

__all__ = ["HEARD_PATIENT_US", "LaneRouter"]

HEARD_US = 1_000_000
HEARD_PATIENT_US = 3_000_000
"""A lane that moves to another former has no owner for a moment, and one whose former
restarts alone for 1-2 s; a request with more time than this may wait there."""


class _Owner(NamedTuple):
    epoch: int
    former: str
    draining: bool


class LaneRouter:
    """The lanes that may be sent to, in turn. Pure; ``roster`` knows when a former,
    by its instance, was heard."""

    def __init__(self, roster: Roster[str]) -> None:
        self._roster = roster
        self._owners: dict[int, _Owner] = {}
        self.lanes: tuple[int, ...] = ()
        """The lanes that take any request now."""
        self.lanes_patient: tuple[int, ...] = ()
        """The lanes that take a request with enough time."""
        self._serving: dict[frozenset[int], tuple[list[int], list[int]]] = {}
        """Of both, those that serve a model."""
        self._turn = 0

    def own(self, former: str, lanes: Mapping[int, int], *, draining: bool) -> None:
        """A former says which lanes it owns, each with its epoch; the highest epoch of
        a lane, among those heard of lately, is its owner's."""
        for lane, epoch in lanes.items():
            known = self._owners.get(lane)
            if (
                known is None
                or epoch >= known.epoch
                or not self._roster.heard_within(known.former, HEARD_PATIENT_US)
            ):
                self._owners[lane] = _Owner(epoch, former, draining)
        for lane, owner in list(self._owners.items()):
            if owner.former == former and lane not in lanes:
                self._owners[lane] = owner._replace(draining=True)
                if not draining:
                    self._give_up(lane)

    def _give_up(self, lane: int) -> None:
        """Its former lives on without it: from now on the patient wait for another,
        to whom the group is giving it."""
        nobody = f"of lane {lane}"
        self._roster.heard(nobody, self._roster.newest_us or 0)
        self._owners[lane] = self._owners[lane]._replace(former=nobody)

    def refresh(self) -> None:
        """Ask the roster again, after it has read on."""
        self.lanes_patient = self._heard_within(HEARD_PATIENT_US)
        self.lanes = tuple(
            lane
            for lane in self._heard_within(HEARD_US)
            if not self._owners[lane].draining
        )
        self._serving.clear()

    def candidates(self, limit_us: int, serving: frozenset[int]) -> list[int]:
        """The lanes for a request with ``limit_us`` of time, among those ``serving``
        its model; empty: no former was heard of. Each time another one is first."""
        known = self._serving.get(serving)
        if known is None:
            known = self._serving[serving] = (
                [lane for lane in self.lanes if lane in serving],
                [lane for lane in self.lanes_patient if lane in serving],
            )
        found, patient = known
        if not found and limit_us > HEARD_PATIENT_US:
            found = patient
        if len(found) > 1:
            self._turn = (self._turn + 1) % len(found)
            found = found[self._turn :] + found[: self._turn]
        return found

    def _heard_within(self, us: int) -> tuple[int, ...]:
        return tuple(
            lane
            for lane, owner in sorted(self._owners.items())
            if self._roster.heard_within(owner.former, us)
        )
