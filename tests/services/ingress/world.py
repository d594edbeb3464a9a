"""A handler with everything around it in memory, and time that a test winds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.admission import AdmissionSettings
from headrace.domain import (
    Load,
    ModelState,
    Reason,
    ReplyAddress,
    ServedVersion,
    Tensor,
)
from headrace.errors import BusError
from headrace.payloads import PayloadStore, StoreThreads
from headrace.telemetry import IngressMetrics, MetricsRegistry
from headrace.testing import ManualClock, MemoryBroker
from headrace.wire import (
    Announcement,
    Answer,
    Heartbeat,
    LaneLoad,
    NewTopic,
    Record,
    Replies,
    RequestEncoder,
    Role,
    RunFacts,
    ServiceState,
    Topics,
)
from services.ingress.admitting import Admission
from services.ingress.claims import Claims
from services.ingress.exchange import Exchange
from services.ingress.fleet import Fleet
from services.ingress.handler import Handler
from services.ingress.head import Target, read_head
from services.ingress.journal import Journal
from services.ingress.meter import Meter
from services.ingress.outcomes import Outcomes
from services.ingress.producing import Outbox, Pace
from services.ingress.settings import IngressLimits
from services.ingress.statistics import Statistics
from tests.services.ingress.models import a_parser, a_version

TOPICS = Topics("h")
STORED_BYTES_MAX = 4096
BODY = json.dumps(
    {"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}]}
).encode()


class HeldExchange(Exchange):
    """An exchange whose answer the test looks at."""

    __slots__ = ("body", "fields", "status")

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler.new_request_id(), handler.clock.now_us())
        self.status: int | None = None
        self.fields = b""
        self.body = b""

    def deliver(
        self, status: int, fields: bytes, body: Sequence[bytes | memoryview]
    ) -> None:
        assert self.status is None, "answered twice"
        self.response_complete = True
        self.status = status
        self.fields = fields
        self.body = b"".join(body)

    @property
    def reason(self) -> str:
        """The header ``headrace-reason``; empty for a result."""
        for line in self.fields.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            if name == "headrace-reason":
                return value
        return ""


class World:
    """One ingress of one lane; a former and worker slot 0 were just heard."""

    def __init__(
        self,
        *versions: ServedVersion,
        lanes: int = 1,
        queue_records_max: int = 1000,
        former: bool = True,
        store: PayloadStore | None = None,
        payload_bytes_max: int = 1024 * 1024,
        **limits: int,
    ) -> None:
        self.clock = ManualClock(10_000_000)
        self.broker = MemoryBroker(self.clock)
        self.fleet = Fleet(lanes, a_parser)
        self.admission = Admission(AdmissionSettings(), self.fleet.router)
        self.registry = MetricsRegistry()
        self.producer = self.broker.producer(queue_records_max=queue_records_max)
        self.busy = self.broker.producer(queue_records_max=queue_records_max)
        self.outbox = Outbox(
            {
                Pace.QUIET: self.producer,
                Pace.BUSY: self.busy,
                Pace.PATIENT: self.busy,
            },
            topics=TOPICS,
            encoder=RequestEncoder(
                "headrace/ingress/0", ReplyAddress(TOPICS.replies, 0)
            ),
            payload_bytes_max=payload_bytes_max,
            clock=self.clock,
            to_log_us=lambda mono_us: mono_us,
            refused=self._refused,
        )
        self.handler = Handler(
            IngressLimits(**limits),
            fleet=self.fleet,
            admission=self.admission,
            outbox=self.outbox,
            outcomes=Outcomes(
                Statistics(),
                Meter(IngressMetrics(self.registry)),
                Journal(self.clock),
            ),
            clock=self.clock,
            claims=Claims(
                store,
                StoreThreads() if store else None,
                inline_bytes_max=payload_bytes_max,
                stored_bytes_max=STORED_BYTES_MAX,
                now_us=self.clock.now_us,
            ),
            keep=nothing_is_kept,
        )
        for served in versions or (a_version(),):
            self.announce(served)
        self.beat(Role.GPU_WORKER)
        if former:
            self.beat(Role.BATCH_FORMER)
        self.fleet.starting = False

    def announce(
        self, served: ServedVersion, state: ModelState = ModelState.READY
    ) -> None:
        topic = NewTopic(TOPICS.requests(served.model), 4, {})
        self.broker.admin().create_topics([topic], 1)
        for slot in served.ready_slots:
            self.fleet.announced(
                Announcement(
                    served.model,
                    served.version,
                    slot,
                    state,
                    signature=served.signature,
                    sha256=served.sha256,
                    max_batch=served.max_batch,
                    batch_axes=served.batch_axes,
                )
            )

    def beat(
        self,
        role: Role,
        slot: int = 0,
        state: ServiceState = ServiceState.READY,
        *,
        load: Load | None = None,
        active: bool = True,
    ) -> None:
        """A heartbeat, appended now."""
        lane_load = LaneLoad(
            lane=0,
            epoch=1,
            active=active,
            load=load or Load(slots=1, free_us=[0]),
            request_us=0,
            control_us=0,
            response_us=0,
        )
        lanes = (lane_load,) if role is Role.BATCH_FORMER else ()
        heartbeat = Heartbeat(role, slot, f"{role}-{slot}", state, lanes=lanes)
        self.fleet.heard(heartbeat, self.clock.now_us())
        self.fleet.refresh()
        self.admission.heard(heartbeat, self.clock.now_us())

    def ask(
        self, *headers: tuple[bytes, bytes], body: bytes = BODY, model: str = "m"
    ) -> HeldExchange:
        """A whole request; it waits, or is answered."""
        exchange = self.begin(*headers, model=model)
        if not exchange.response_complete:
            self.handler.finish(exchange, body)
        self.producer.poll(0)
        self.busy.poll(0)
        return exchange

    def begin(
        self, *headers: tuple[bytes, bytes], model: str = "m", version: str = ""
    ) -> HeldExchange:
        exchange = HeldExchange(self.handler)
        self.handler.begin(exchange, Target(model, version), read_head(headers))
        return exchange

    def reply(self, *answers: Answer) -> None:
        self.handler.ends.replies_arrived(
            [
                Replies(
                    batch="b1",
                    model="m",
                    version="1",
                    epoch=1,
                    batch_rows=len(answers),
                    facts=RunFacts("0/1", 1, 2, 3, 4),
                    answers=list(answers),
                )
            ]
        )

    def records(self, model: str = "m") -> list[Record]:
        return [
            record
            for partition in range(4)
            for record in self.broker.records(TOPICS.requests(model), partition)
        ]

    def wind(self, us: int) -> None:
        """Time passes, turn by turn of the event loop."""
        while us > 0:
            step = min(us, 100_000)
            us -= step
            self.clock.advance(step)
            self.producer.poll(0)
            self.busy.poll(0)
            self.handler.tick()

    def _refused(self, exchange: Exchange, error: BusError) -> None:
        self.handler.ends.log_refused(exchange, error)


def nothing_is_kept(*_request: object) -> None:
    raise AssertionError("a kept answer was asked for")


def a_result(exchange: Exchange, **changes: Any) -> Answer:
    """The worker's answer to an exchange: Y is four ones."""
    output = Tensor("Y", a_version().signature.outputs[0].datatype, (1, 4), ONES)
    given = {
        "id": exchange.request_id,
        "tenant": exchange.tenant,
        "rows": 1,
        "attempt": 1,
        "outputs": (output,),
        "reason": None,
        "text": "",
        "retry_after_us": None,
    }
    return Answer(**(given | changes))


def an_error(exchange: Exchange, reason: Reason, **changes: Any) -> Answer:
    return a_result(
        exchange, outputs=(), reason=reason, text=f"it was {reason}", **changes
    )


ONES = b"\0\0\x80\x3f" * 4
