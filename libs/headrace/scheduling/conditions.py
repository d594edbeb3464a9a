"""Under which a batch would start, and whether it leaves at once."""

from __future__ import annotations

from headrace.domain import Priority, ReleaseReason
from headrace.scheduling.backlog import Backlog
from headrace.scheduling.choice import Choice
from headrace.scheduling.line import Line
from headrace.scheduling.online import OnlineTraffic
from headrace.scheduling.selection import Terms
from headrace.scheduling.settings import SchedulingSettings
from headrace.scheduling.waiting import send_at

__all__ = ["Conditions"]


class Conditions:
    """What the settings and all that is known of a lane make of a batch."""

    def __init__(
        self, settings: SchedulingSettings, backlog: Backlog, online: OnlineTraffic
    ) -> None:
        self._settings = settings
        self._backlog = backlog
        self._online = online

    def terms(
        self, line: Line, priority: int, start_us: int, rows_max: int, now_us: int
    ) -> Terms:
        demand = line.demand
        hops_us = self._backlog.control_us + self._backlog.response_us
        slots = max(len(line.slots), 1)
        pressure = self._online.pressure(line, priority, now_us)
        return Terms(
            start_us=start_us,
            response_us=self._backlog.response_us,
            target_rows=min(
                demand.target_rows(line.times, hops_us, slots, now_us), rows_max
            ),
            rows_max=rows_max,
            bytes_max=self._settings.batch_bytes_max,
            gate=self._gate(pressure),
            gate_light=self._settings.gate,
            pressure=self._online.pressure_around(line, priority, pressure, now_us),
            is_group=line.alone,
        )

    def gate(self, line: Line, priority: int, now_us: int) -> float:
        """The part of what the queue could fill, below which its heads are given up."""
        return self._gate(self._online.pressure(line, priority, now_us))

    def _gate(self, pressure: float) -> float:
        gate = self._settings.gate
        return gate + (1 - gate) * pressure

    def deferral(self, line: Line, priority: int) -> float:
        """Bulk work of the same line rides along; that of others needs a gap."""
        bulk = self._backlog.busy[Priority.BULK].values()
        if priority != Priority.BULK and any(other is not line for other in bulk):
            return max(self._settings.deferral, self._settings.deferral_bulk)
        return self._settings.deferral

    def send_at(
        self, choice: Choice, rows: int, terms: Terms, now_us: int
    ) -> tuple[int, ReleaseReason]:
        """When ``choice`` leaves, and why then, with ``rows`` of online requests."""
        line, priority = choice.line, choice.priority
        return send_at(
            line,
            choice.chosen,
            terms,
            choice.slot,
            priority=priority,
            rows=rows,
            deferral=self.deferral(line, priority),
            lines=max(self._online.lines(now_us), 1),
            spacing_us=self._backlog.spacing_us if priority else 0,
            control_us=self._backlog.control_us,
            now_us=now_us,
        )
