"""Whether a request may enter, and into which lane: the door, told what is heard."""

from __future__ import annotations

from functools import lru_cache

from headrace.admission import AdmissionSettings, Admitted, Denied, Door
from headrace.domain import Priority, Reason
from headrace.wire import Heartbeat, Role, ServiceState
from services.ingress.fleet import Destination
from services.ingress.refusal import Refusal, refuse
from services.ingress.routing import HEARD_PATIENT_US, LaneRouter

__all__ = ["NO_FORMER", "Admission"]

PRODUCE_US = 2_000
"""From a request's head to its append; a former measures the hops after that."""
INGRESS_HEARD_US = 2_000_000
LAG_MEMORY = 0.8

REFUSALS_KEPT = 256
"""Under overload a few verdicts are given thousands of times a second."""

NO_FORMER = "no batch former was heard of lately"


class Admission:
    """One process's admission. ``router`` names the lanes that may be sent to, the
    door chooses among them by their load."""

    def __init__(self, settings: AdmissionSettings, router: LaneRouter) -> None:
        self._door = Door(settings)
        self._router = router
        self._ingresses: dict[str, int] = {}
        self.verdict = 0
        """Counts whatever may change what :meth:`decide` says, but for time."""

    def heard(self, heartbeat: Heartbeat, now_us: int) -> None:
        self.verdict += 1
        match heartbeat.role:
            case Role.BATCH_FORMER:
                for each in heartbeat.lanes:
                    if each.active:
                        self._door.heard(
                            each.lane,
                            each.load,
                            request_us=PRODUCE_US + each.request_us,
                            rest_us=each.control_us + each.response_us,
                            now_us=now_us,
                        )
            case Role.INGRESS if heartbeat.state is ServiceState.READY:
                self._ingresses[heartbeat.instance] = now_us
                self._ingresses = {
                    instance: at_us
                    for instance, at_us in self._ingresses.items()
                    if now_us - at_us < INGRESS_HEARD_US
                }
                self._door.ingresses = len(self._ingresses)
            case _:
                pass

    def loop_turned(self, late_us: int) -> None:
        """The loop's timer ran ``late_us`` after its time."""
        self.verdict += 1
        remembered = int(self._door.loop_lag_us * LAG_MEMORY)
        self._door.loop_lag_us = max(late_us, remembered)

    def loop_is_late(self, late_us: int) -> None:
        """The loop's timer has been due for ``late_us``, and has not run yet."""
        self._door.loop_lag_us = max(late_us, self._door.loop_lag_us)

    def decide(
        self,
        destination: Destination,
        priority: Priority,
        *,
        tenant: str,
        limit_us: int,
        in_flight: int,
        now_us: int,
    ) -> int | Refusal:
        """The lane to send a request to, or why it is refused."""
        candidates = self._router.candidates(limit_us, destination.lanes)
        if not candidates:
            return refuse(Reason.NO_FORMER, NO_FORMER)
        verdict = self._door.decide(
            candidates,
            destination.price,
            priority,
            tenant=tenant,
            limit_us=limit_us,
            in_flight=in_flight,
            now_us=now_us,
        )
        if type(verdict) is Admitted:
            return verdict.lane
        assert isinstance(verdict, Denied)
        if verdict.reason is Reason.NO_CAPACITY and limit_us > HEARD_PATIENT_US:
            # A worker that restarts is back before the time is over.
            return candidates[0]
        return _refused(verdict)

    def sent(
        self,
        lane: int,
        destination: Destination,
        priority: Priority,
        rows: int,
        deadline_us: int,
        *,
        tenant: str,
    ) -> None:
        self.verdict += 1
        price = destination.price
        self._door.admitted(lane, price, priority, rows, deadline_us, tenant=tenant)

    def answered(self, model: str, latencies_us: list[int], in_flight: int) -> None:
        self._door.answered(model, latencies_us, in_flight)


@lru_cache(REFUSALS_KEPT)
def _refused(verdict: Denied) -> Refusal:
    return refuse(verdict.reason, verdict.text, retry_after_us=verdict.retry_after_us)
