"""A scheduler with workers around it that do what they are told, in virtual time."""

from __future__ import annotations

from itertools import count

from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    Padding,
    Priority,
    Refuse,
    Request,
    SchedulerDecision,
    ServedVersion,
    Signature,
    SlotChanged,
    Source,
    Ticked,
    VersionChanged,
)
from headrace.scheduling import BatchFormer, SchedulingSettings

MS = 1000
EMPTY = Signature(inputs=(), outputs=())


def a_version(
    model: str = "m",
    *,
    slots: frozenset[int] = frozenset({0}),
    max_batch: int = 4,
    alpha_us: int = 1 * MS,
    beta_us: int = 1 * MS,
    version: str = "1",
    rows_fit: dict[int, int] | None = None,
    recent_runs: dict[str, tuple[tuple[int, int], ...]] | None = None,
    padding: Padding | None = None,
    run_length: int = 0,
) -> ServedVersion:
    return ServedVersion(
        model=model,
        version=version,
        signature=EMPTY,
        sha256="",
        max_batch=max_batch,
        batch_axes={},
        padding=padding,
        latency_objective_us=None,
        run_us={
            rows: alpha_us + beta_us * rows
            for rows in {1, 2, 3, max_batch}
            if rows <= max_batch
        },
        ready_slots=slots,
        unloading_slots=frozenset(),
        rows_fit=rows_fit or {},
        recent_runs=recent_runs or {},
        run_length=run_length,
    )


_numbers = count()


def a_request(
    *,
    key: str | None = None,
    model: str = "m",
    version: str = "1",
    shape: str = "x:FP32:1",
    rows: int = 1,
    length: int = 0,
    priority: Priority = Priority.STANDARD,
    tenant: str = "default",
    at_us: int = 0,
    limit_us: int | None = 1000 * MS,
    group: str = "",
    avoid: int | None = None,
    size_bytes: int = 4,
) -> Request:
    key = key or f"r{next(_numbers)}"
    return Request(
        key=key,
        id=key,
        tenant=tenant,
        model=model,
        version=version,
        shape=shape,
        rows=rows,
        length=length,
        priority=priority,
        arrived_us=at_us,
        deadline_us=None if limit_us is None else at_us + limit_us,
        reply_to=None,
        source=Source("requests", 0, 0),
        tensors=(),
        size_bytes=size_bytes,
        group=group,
        avoid=avoid,
    )


class Desk:
    """The scheduler, ``slots`` workers of ``credits``, no hops. Workers report what
    they hold as the delivery protocol does: as a level."""

    def __init__(
        self,
        *versions: ServedVersion,
        slots: int = 1,
        credits_each: int = 2,
        settings: SchedulingSettings | None = None,
    ) -> None:
        self.credits = credits_each
        settings = settings or SchedulingSettings(control_hop_us=0, response_hop_us=0)
        numbers = count()
        self.former = BatchFormer(
            settings, batch_ids=(f"b{number}" for number in numbers)
        )
        self.held: dict[int, list[Dispatch]] = {slot: [] for slot in range(slots)}
        for served in versions or (a_version(slots=frozenset(range(slots))),):
            self.former.handle(VersionChanged(served), 0)
        for slot in range(slots):
            self.tell(slot, now_us=0)

    def tell(self, slot: int, *, now_us: int) -> None:
        held = self.held[slot]
        batches = tuple(dispatch.batch for dispatch in held)
        self.former.handle(SlotChanged(slot, self.credits - len(held), batches), now_us)

    def arrive(self, *requests: Request, now_us: int = 0) -> None:
        for request in requests:
            assert self.former.handle(Arrived(request), now_us) == []

    def tick(self, now_us: int = 0) -> list[SchedulerDecision]:
        decisions = self.former.handle(Ticked(), now_us)
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self.held[decision.slot].append(decision)
        for slot in {each.slot for each in decisions if isinstance(each, Dispatch)}:
            self.tell(slot, now_us=now_us)
        return decisions

    def finish(self, slot: int = 0, *, now_us: int, run_us: int | None = None) -> None:
        """The slot's first batch ends, after its predicted time unless said."""
        dispatch = self.held[slot].pop(0)
        ran = dispatch.predicted_us if run_us is None else run_us
        self.former.handle(BatchEnded(dispatch.batch, slot, ran), now_us)
        self.tell(slot, now_us=now_us)


def keys(decision: SchedulerDecision) -> list[str]:
    """The requests of a dispatch, or the one refused."""
    if isinstance(decision, Refuse):
        return [decision.request.key]
    return [request.key for request in decision.requests]
