"""What this process knows of the others: models, workers and batch formers.

Pure, folded from ``control.models`` and ``status``. A version is ready for clients
when a slot has announced it and was heard since, and a lane's former can send to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.delivery import Roster
from headrace.domain import Price, Reason, ServedVersion
from headrace.errors import RequestError
from headrace.registry import Catalog, VersionInfo
from headrace.wire import Announcement, Heartbeat, Role, ServiceState
from services.ingress.parsing import RequestParser
from services.ingress.routing import LaneRouter

__all__ = ["Destination", "Fleet"]

WORKER_HEARD_US = 3_000_000
"""A version whose ready slots were all silent for so long is not ready."""

LANE_SENDING_US = 3_000_000
"""A version whose lanes all had no active former with workers for so long is not
ready, though requests with enough time are taken in."""


class Destination(NamedTuple):
    """A version that may be asked, how its requests are read, and the lanes whose
    workers have it."""

    served: ServedVersion
    parser: RequestParser
    lanes: frozenset[int]
    price: Price
    """What the workers announced, for a lane that has not run the version."""


class Fleet:
    """The versions that may be asked, and the lanes that lead to them."""

    def __init__(
        self, lanes: int, parser_for: Callable[[ServedVersion], RequestParser]
    ) -> None:
        self.starting = True
        """Until the tables have been read once nothing is known, and nothing that is
        missing is an error of the client's."""
        self.log_awaited = False
        """While it is starting: the log has never answered."""
        self._lanes = lanes
        self._parser_for = parser_for
        self._catalog = Catalog()
        self._roster: Roster[str] = Roster()
        self.router = LaneRouter(self._roster)
        self._lane_of_slot: dict[int, int] = {}
        self._resolved: dict[tuple[str, str], Destination] = {}
        self._versions: dict[
            tuple[str, str], tuple[ServedVersion, RequestParser, Price]
        ] = {}

    def announced(self, announcement: Announcement) -> None:
        self._catalog.apply(announcement)
        self._resolved.clear()

    def withdrawn(self, model: str, version: str, slot: int) -> None:
        """The version left the slot for good."""
        self._catalog.remove(model, version, slot)
        self._resolved.clear()

    def heard(self, heartbeat: Heartbeat, log_us: int) -> None:
        """A process wrote to ``status`` at ``log_us``."""
        match heartbeat.role:
            case Role.BATCH_FORMER:
                self._roster.heard(heartbeat.instance, log_us)
                for each in heartbeat.lanes:
                    if each.active and each.load.slots:
                        self._roster.heard(_sending(each.lane), log_us)
                self.router.own(
                    heartbeat.instance,
                    {load.lane: load.epoch for load in heartbeat.lanes},
                    draining=heartbeat.state is ServiceState.DRAINING,
                )
            case Role.GPU_WORKER:
                self._roster.heard(_worker(heartbeat.slot), log_us)
                lane = heartbeat.lane
                self._lane_of_slot[heartbeat.slot] = (
                    heartbeat.slot % self._lanes if lane is None else lane
                )
            case Role.INGRESS:
                self._roster.advance(log_us)

    def refresh(self) -> None:
        """After a batch of heartbeats: ask anew who was heard."""
        self.router.refresh()
        self._resolved.clear()

    def resolve(self, model: str, version: str = "") -> Destination:
        """Where a new request goes: to the named version, else to the highest that is
        ready and heard.

        Raises :class:`RequestError` with reason ``model_unknown``, ``model_loading``
        or ``model_unavailable``.
        """
        found = self._resolved.get((model, version))
        if found is not None:
            return found
        if self.starting and self.log_awaited:
            raise RequestError(
                "the log has not answered since this ingress started",
                reason=Reason.LOG_UNAVAILABLE,
            )
        if self.starting:
            raise RequestError(
                "this ingress is starting: it does not know the models yet",
                reason=Reason.MODEL_LOADING,
            )
        served = self._catalog.resolve(model, version)
        slots = self._heard_slots(served)
        if not slots and not version:
            served, slots = self._next_heard(served)
        if not slots:
            raise RequestError(
                f"model {model!r} is not ready: {_SILENT}",
                reason=Reason.MODEL_UNAVAILABLE,
            )
        parser, price = self._known(served)
        found = Destination(served, parser, self._lanes_of(slots), price)
        self._resolved[model, version] = found
        return found

    def versions(self) -> list[VersionInfo]:
        """Every announced version, by model and number."""
        return self._catalog.versions()

    def ready_versions(self, model: str) -> list[str]:
        """Those that a client may name, by number."""
        return [
            info.version
            for info in self._catalog.versions_of(model)
            if self._why_not_accepted(info) is None
        ]

    def why_not_ready(self, info: VersionInfo) -> str | None:
        """None: ready, from the worker's announcement to a lane that leads to it."""
        why_not = self._why_not_accepted(info)
        if why_not is None and info.served is not None:
            why_not = self.why_not_reached(info.served)
        return why_not

    def why_not_reached(self, served: ServedVersion) -> str | None:
        """None: a lane of its workers had a former that could send to them, at some
        instant of the last seconds; a failover is shorter, and requests wait for it."""
        if any(
            self._roster.heard_within(_sending(lane), LANE_SENDING_US)
            for lane in self._lanes_of(self._heard_slots(served))
        ):
            return None
        return _UNREACHED

    def _why_not_accepted(self, info: VersionInfo) -> str | None:
        served = info.served
        if served is None or not served.accepts:
            return info.reason or info.state.value
        if not self._heard_slots(served):
            return _SILENT
        return None

    def _lanes_of(self, slots: Iterable[int]) -> frozenset[int]:
        return frozenset(
            self._lane_of_slot.get(slot, slot % self._lanes) for slot in slots
        )

    def _known(self, served: ServedVersion) -> tuple[RequestParser, Price]:
        """Made anew when the version changes, not when somebody is heard: a parser
        remembers the shapes that it has seen."""
        key = served.model, served.version
        known = self._versions.get(key)
        if known is None or known[0] != served:
            price = _announced(served)
            known = self._versions[key] = served, self._parser_for(served), price
        return known[1:]

    def _next_heard(self, highest: ServedVersion) -> tuple[ServedVersion, list[int]]:
        for info in reversed(self._catalog.versions_of(highest.model)):
            served = info.served
            if served is not None and served.accepts:
                slots = self._heard_slots(served)
                if slots:
                    return served, slots
        return highest, []

    def _heard_slots(self, served: ServedVersion) -> list[int]:
        return [
            slot
            for slot in served.ready_slots
            if self._roster.heard_within(_worker(slot), WORKER_HEARD_US)
        ]


def _announced(served: ServedVersion) -> Price:
    runs = sorted(served.run_us.items()) or [(1, 0)]
    rows, run_us = runs[-1]
    one_us = runs[0][1]
    return Price(
        model=served.model,
        version=served.version,
        row_us=run_us // rows,
        batch_us=run_us,
        one_us=one_us,
    )


_SILENT = "no worker that has it was heard of for 3 s"

_UNREACHED = "no batch former had a worker to send it to for 3 s"


def _sending(lane: int) -> str:
    """The roster's key of a lane whose former can send to workers."""
    return f"lane/{lane}"


def _worker(slot: int) -> str:
    return f"{Role.GPU_WORKER}/{slot}"
