"""Predicts when a request would finish, and refuses what would finish too late.

Each lane publishes its load many times a second. The door adds what this and the
other ingresses have sent since, takes off what the devices have done since, and
compares the predicted finish with a part of the request's time limit. It is an
optimisation: the batch former stays the authority, and refuses with a reply what was
let in on stale facts.

A former serves the earliest deadline first. So what is ahead of a request is the work
of more urgent priorities, and of its own that is due before it. It may enter in front
of work that is due later as long as that work keeps its time too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from headrace.admission.gradient import GradientLimit
from headrace.admission.lane import Lane
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

FULL = "as many requests of the tenant wait for the model as may (queue_requests_max)"

SHARE_BATCHES = 2
"""A priority that waits for its guaranteed share has a full batch for it, even if half
of its requests are given up before the share has come."""


class Admitted(NamedTuple):
    """The lane with the earliest predicted finish."""

    lane: int


class Denied(NamedTuple):
    reason: Reason
    text: str
    retry_after_us: int


class _Terms(NamedTuple):
    """What bears on a verdict besides the work ahead."""

    hops_us: int
    one_us: int
    batch_us: int
    limit_us: int
    lag_us: int
    is_heavy: bool
    versions: float
    is_dear: bool
    lull: float


class Door:
    """The admission of one ingress process. Not for more than one thread."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        self._load_age_us_max = settings.load_age_us_max
        self._lanes: dict[int, Lane] = {}
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
            known = self._lanes[lane] = Lane(self._settings.unheard_us_max)
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
        deadline_us = now_us + limit_us
        best: tuple[int, int, Price, int, Lane] | None = None
        blind: int | None = None
        full: Lane | None = None
        for lane in lanes:
            known = self._lanes.get(lane)
            if known is None or now_us - known.heard_us > self._load_age_us_max:
                blind = lane
            elif priority is not Priority.BULK and known.is_full(key, tenant):
                full = known
            elif known.slots:
                # In whole steps, so that the same few verdicts answer a flood.
                ahead_us = known.ahead_us(priority, deadline_us)
                waits_us = _steps(known.waits_us(ahead_us, now_us))
                told = known.prices.get(key, price)
                finish_us = waits_us + known.hops_us + told.batch_us
                if best is None or finish_us < best[0]:
                    best = finish_us, waits_us, told, lane, known
        if best is not None:
            _, waits_us, told, lane, known = best
            terms = _Terms(
                known.hops_us,
                told.one_us,
                told.batch_us,
                limit_us,
                lag_us,
                tenant in known.heavy,
                known.versions,
                told.is_dear and now_us < known.refuses_dear_until_us,
                # An ingress that is behind may itself be why a device ran dry.
                0.0 if lag_us > LAG_MIN_US else known.lull,
            )
            denied = self._weighed(known, priority, waits_us, terms, now_us)
            if denied is None:
                return Admitted(lane)
            known.refused(now_us, is_dear=told.is_dear)
            return denied
        return self._unseen(blind, full, price, priority, in_flight, now_us)

    def _unseen(
        self,
        blind: int | None,
        full: Lane | None,
        price: Price,
        priority: Priority,
        in_flight: int,
        now_us: int,
    ) -> Admitted | Denied:
        """The verdict where no lane tells how long a request would wait in it."""
        if blind is not None:
            return self._blindly(blind, price.model, in_flight)
        if full is not None:
            waits_us = _steps(full.waits_us(full.all_us(priority), now_us))
            return Denied(Reason.QUEUE_FULL, FULL, waits_us)
        text = "no worker can be sent to"
        return Denied(Reason.NO_CAPACITY, text, self._load_age_us_max)

    def _weighed(
        self,
        known: Lane,
        priority: Priority,
        waits_us: int,
        terms: _Terms,
        now_us: int,
    ) -> Denied | None:
        """The verdict on a request that has ``waits_us`` of work ahead of it, for the
        sake of what it would pass, and of the share that its priority is owed."""
        denied = self._verdict(waits_us, *terms)
        if denied is not None:
            if denied.reason is Reason.OVERLOADED and self._is_share_left(
                known, priority, terms, now_us
            ):
                return None
            return denied
        run_us = known.hops_us + terms.batch_us
        pushed = known.pushed(priority, now_us + terms.limit_us, run_us, now_us)
        if pushed is None:
            return None
        all_us = _steps(known.waits_us(known.all_us(priority), now_us))
        if self._verdict(all_us, *terms) is None:
            return None
        return _pushing(_steps(pushed.done_us), pushed.due_us)

    def _is_share_left(
        self, known: Lane, priority: Priority, terms: _Terms, now_us: int
    ) -> bool:
        """Whether a request could enter if nothing were more urgent, and what waits of
        its priority is done in time by its share, or makes no more than
        :data:`SHARE_BATCHES`."""
        share, own_us = known.shares[priority], known.own_us(priority)
        allowed_us = int(self._settings.fill * (terms.limit_us - terms.lag_us))
        room_us = max(share * known.slots * allowed_us, SHARE_BATCHES * terms.batch_us)
        if not share or own_us >= room_us:
            return False
        own_waits_us = _steps(known.waits_us(own_us, now_us))
        return self._verdict(own_waits_us, *terms) is None

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

    def admitted(
        self,
        lane: int,
        price: Price,
        priority: Priority,
        rows: int,
        deadline_us: int,
        *,
        tenant: str,
    ) -> None:
        """A request was sent into ``lane``: what is due after it waits for it."""
        known = self._lanes.get(lane)
        if known is not None:
            key = price.model, price.version
            told = known.prices.get(key, price)
            if priority is not Priority.BULK:
                known.enter(key, tenant, self.ingresses)
            known.send(priority, deadline_us, rows * told.row_us * self.ingresses)

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
        is_dear: bool,  # noqa: FBT001 - likewise
        lull: float,
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
            is_dear=is_dear,
            lull=lull,
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


def _pushing(done_us: int, due_us: int) -> Denied:
    due_us -= due_us % STEP_US
    text = (
        f"it would pass work that is due in {_ms(due_us)} ms and would then be done "
        f"in {_ms(done_us)} ms"
    )
    return Denied(Reason.OVERLOADED, text, done_us - due_us)


def _steps(us: int) -> int:
    return -(-us // STEP_US) * STEP_US


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
