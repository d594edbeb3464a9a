"""Predicts when a request would finish, and refuses what would finish too late.

Each lane publishes its load many times a second. The door adds what this and the
other ingresses have sent since, takes off what the devices have done since, and
compares the predicted finish with a part of the request's time limit. It is an
optimisation: the batch former stays the authority, and refuses with a reply what was
let in on stale facts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from headrace.admission.gradient import GradientLimit
from headrace.admission.room import room_of
from headrace.admission.settings import AdmissionSettings
from headrace.domain import Load, Price, Priority, Reason

__all__ = ["Admitted", "Denied", "Door"]


LAG_MIN_US = 1_000
"""The loop of an idle process is late by so much now and then: a shorter lag refuses
nobody."""


STEP_US = 1_000
"""Waits and the loop's lag are judged, and told, in whole steps."""

VERDICTS_KEPT = 1024

_FROM_ON = tuple(range(priority, len(Priority)) for priority in Priority)
"""What waits for work of a priority: it, and whatever is less urgent."""


class Admitted(NamedTuple):
    """The lane with the earliest predicted finish."""

    lane: int


class Denied(NamedTuple):
    reason: Reason
    text: str
    retry_after_us: int


class _Lane:
    """A lane's load, and what was sent since it was published."""

    def __init__(self, number: int) -> None:
        self.admitted = Admitted(number)
        self.slots = 0
        self.heard_us = -1
        self.hops_us = 0
        self._ahead_us = [0.0] * len(Priority)
        """Before a request of each priority, what was sent since included."""
        self._free_us = [0]
        self._reach_us = [0.0]
        self.prices: dict[tuple[str, str], Price] = {}
        self.heavy: frozenset[str] = frozenset()
        self.versions = 0.0
        """Asked for lately, for each slot."""

    def hear(self, load: Load, hops_us: int, now_us: int) -> None:
        self.slots = load.slots
        self.heard_us = now_us
        self.hops_us = hops_us
        self.heavy = frozenset(load.heavy)
        self.prices = {(each.model, each.version): each for each in load.prices}
        self.versions = len(load.prices) / load.slots if load.slots else 0.0
        ahead_us = 0.0
        for priority in Priority:
            ahead_us += sum(
                queue.backlog_us for queue in load.queues if queue.priority == priority
            )
            self._ahead_us[priority] = ahead_us
        self._free_us = load.free_us or [0]
        each_for = load.slots / len(self._free_us)
        reach_us, reached = 0.0, [0.0]
        for working, (free_us, next_us) in enumerate(pairwise(self._free_us), start=1):
            reach_us += working * each_for * (next_us - free_us)
            reached.append(reach_us)
        self._reach_us = reached

    def send(self, priority: Priority, device_us: int) -> None:
        ahead_us = self._ahead_us
        for later in _FROM_ON[priority]:
            ahead_us[later] += device_us

    def waits_us(self, priority: Priority, worked_us: int) -> int:
        """Until the slots have done all that is ahead, of which they have done
        ``worked_us`` since: each begins when it is free, so ``_reach_us`` of work is
        done when the next one joins."""
        ahead_us, free_us = self._ahead_us[priority], self._free_us
        if len(free_us) == 1:
            done_us = free_us[0] + int(ahead_us / self.slots)
        else:
            working = bisect_right(self._reach_us, ahead_us)
            share = self.slots * working / len(free_us)
            left_us = (ahead_us - self._reach_us[working - 1]) / share
            done_us = free_us[working - 1] + int(left_us)
        return done_us - worked_us if done_us > worked_us else 0


class Door:
    """The admission of one ingress process. Not for more than one thread."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        self._load_age_us_max = settings.load_age_us_max
        self._unheard_us_max = settings.unheard_us_max
        self._lanes: dict[int, _Lane] = {}
        self._verdict = lru_cache(VERDICTS_KEPT)(self._denied)
        self._gradients: dict[str, GradientLimit] = {}
        self.ingresses = 1
        """Ingress processes of the cell: they all send what this one sends."""

        self.loop_lag_us = 0
        """How late the event loop runs its timers: what a request has already waited
        before anyone saw it."""

    def heard(
        self, lane: int, load: Load, *, request_us: int, rest_us: int, now_us: int
    ) -> None:
        """A lane's load; ``request_us`` is the hop to the former, ``rest_us`` the hops
        from there to the client besides the run."""
        known = self._lanes.get(lane)
        if known is None:
            known = self._lanes[lane] = _Lane(lane)
        known.hear(load, request_us + rest_us, now_us)

    def decide(  # noqa: PLR0913 - all that bears on it
        self,
        lanes: Iterable[int],
        price: Price,
        priority: Priority,
        *,
        tenant: str,
        limit_us: int,
        in_flight: int,
        now_us: int,
    ) -> Admitted | Denied:
        """Whether a request of one row may enter, and into which of ``lanes``.

        ``price`` is what the model announced, for lanes that have not run it lately;
        ``in_flight`` counts this process's requests of the model.
        """
        lag_us = self.loop_lag_us - self.loop_lag_us % STEP_US
        if lag_us > LAG_MIN_US:
            denied = self._too_late(price, limit_us, lag_us)
            if denied is not None:
                return denied
        key = price.model, price.version
        best: tuple[int, int, Price, _Lane] | None = None
        blind: int | None = None
        for lane in lanes:
            known = self._lanes.get(lane)
            if known is None or now_us - known.heard_us > self._load_age_us_max:
                blind = lane
            elif known.slots:
                worked_us = min(now_us - known.heard_us, self._unheard_us_max)
                # In whole steps, so that the same few verdicts answer a flood.
                waits_us = -(-known.waits_us(priority, worked_us) // STEP_US) * STEP_US
                told = known.prices.get(key, price)
                finish_us = waits_us + known.hops_us + told.batch_us
                if best is None or finish_us < best[0]:
                    best = finish_us, waits_us, told, known
        if best is not None:
            _, waits_us, told, known = best
            denied = self._verdict(
                waits_us,
                known.hops_us,
                told.one_us,
                told.batch_us,
                limit_us,
                lag_us,
                tenant in known.heavy,
                known.versions,
            )
            return known.admitted if denied is None else denied
        if blind is not None:
            return self._blindly(blind, price.model, in_flight)
        text = "no worker can be sent to"
        return Denied(Reason.NO_CAPACITY, text, self._load_age_us_max)

    def _too_late(self, price: Price, limit_us: int, lag_us: int) -> Denied | None:
        settings = self._settings
        lag_limit_us = min(limit_us, settings.loop_lag_limit_us_max)
        if lag_us <= settings.loop_lag_part * lag_limit_us:
            return None
        if price.one_us > limit_us:
            return _too_short(price.one_us, limit_us, lag_us)
        text = (
            f"this ingress is {_ms(lag_us)} ms behind with its work, more than "
            f"{settings.loop_lag_part:g} (loop_lag_part) of {_ms(lag_limit_us)} ms "
            "of the time limit"
        )
        return Denied(Reason.OVERLOADED, text, lag_us)

    def admitted(self, lane: int, price: Price, priority: Priority, rows: int) -> None:
        """A request was sent into ``lane``: what comes after it waits for it."""
        known = self._lanes.get(lane)
        if known is not None:
            told = known.prices.get((price.model, price.version), price)
            known.send(priority, rows * told.row_us * self.ingresses)

    def answered(self, model: str, latencies_us: Iterable[int], in_flight: int) -> None:
        """Requests of the model ended so long after they came; ``in_flight`` wait."""
        answered = self._gradient(model).answered
        for latency_us in latencies_us:
            answered(latency_us, in_flight)

    def _denied(  # noqa: PLR0913, PLR0917 - what a verdict is remembered by
        self,
        waits_us: int,
        hops_us: int,
        one_us: int,
        batch_us: int,
        limit_us: int,
        lag_us: int,
        is_heavy: bool,  # noqa: FBT001 - of a call that is remembered, whose names cost
        versions: float,
    ) -> Denied | None:
        settings = self._settings
        left_us = limit_us - lag_us
        if one_us > left_us:
            return _too_short(one_us, limit_us, lag_us)
        if not waits_us:
            # Nothing is ahead, so refusing helps nobody; and what is never let in
            # never shows that the hops have become shorter again.
            return None
        part, setting, in_batch, in_time = room_of(
            settings,
            limit_us=limit_us,
            left_us=left_us,
            batch_us=batch_us,
            versions=versions,
        )
        run, run_us = ("a batch", batch_us) if in_batch else ("a run", one_us)
        if is_heavy:
            part *= settings.heavy_part
            setting += " * heavy_part: the tenant has had more than his share"
        queue_over_us = waits_us + run_us - int(part * left_us)
        # The queue is what the door can do something about; the hops have the rest of
        # the time limit.
        finish_us = waits_us + hops_us + batch_us
        late_us = finish_us - left_us if in_time else 0
        over_us = max(queue_over_us, late_us)
        if over_us <= 0:
            return None
        ahead = f"{_ms(waits_us)} ms of work are ahead and {run} takes "
        limit = _limit(limit_us, lag_us)
        if late_us > queue_over_us:
            text = (
                f"{ahead}{_ms(run_us)} ms, the hops {_ms(hops_us)} ms: "
                f"{_ms(finish_us)} ms, more than {limit}"
            )
        else:
            text = (
                f"{ahead}{_ms(run_us)} ms: {_ms(waits_us + run_us)} ms, more than "
                f"{part:.3g} ({setting}) of {limit}"
            )
        return Denied(Reason.OVERLOADED, text, over_us)

    def _blindly(self, lane: int, model: str, in_flight: int) -> Admitted | Denied:
        limit = self._gradient(model).limit
        if in_flight < limit:
            return Admitted(lane)
        text = (
            f"{in_flight} requests are in flight, at most {limit} are while no lane "
            "tells its load, by their latency"
        )
        return Denied(Reason.OVERLOADED, text, self._settings.load_age_us_max)

    def _gradient(self, model: str) -> GradientLimit:
        gradient = self._gradients.get(model)
        if gradient is None:
            gradient = self._gradients[model] = GradientLimit(
                initial=self._settings.concurrency_initial,
                limit_max=self._settings.concurrency_max,
            )
        return gradient


def _too_short(one_us: int, limit_us: int, lag_us: int) -> Denied:
    ran = f"a run alone takes up to {_ms(one_us)} ms, as those of late tell"
    text = f"{ran}, more than {_limit(limit_us, lag_us)}"
    late_us = one_us + lag_us - limit_us
    return Denied(Reason.DEADLINE_UNATTAINABLE, text, late_us)


def _limit(limit_us: int, lag_us: int) -> str:
    text = f"the time limit of {_ms(limit_us)} ms"
    if lag_us:
        text += f" less the {_ms(lag_us)} ms that this ingress is behind"
    return text


def _ms(us: int) -> str:
    """Six digits: below a second to the microsecond, so that sums come out."""
    return f"{us / 1000:g}"
