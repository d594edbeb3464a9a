"""Doors, what they were told, and those who ask."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from headrace.admission import AdmissionSettings, Admitted, Denied, Door
from headrace.domain import DUE_WITHIN_US, Load, Price, Priority, QueueLoad

MS = 1000
PRICE = Price(model="m", version="1", row_us=MS // 2, batch_us=10 * MS, one_us=3 * MS)


def a_load(*, running_ms: int = 0, slots: int = 1, **backlog_ms: int) -> Load:
    return Load(
        slots=slots,
        free_us=[running_ms * MS] * slots,
        queues=[
            QueueLoad(
                model="m",
                version="1",
                priority=Priority[name.upper()],
                requests=1,
                rows=1,
                oldest_us=0,
                backlog_us=value * MS,
            )
            for name, value in backlog_ms.items()
        ],
        prices=[PRICE],
    )


def a_door(*loads: Load) -> Door:
    door = Door(AdmissionSettings())
    for lane, load in enumerate(loads):
        door.heard(lane, load, request_us=1 * MS, rest_us=2 * MS, now_us=0)
    return door


def ask(
    door: Door,
    *lanes: int,
    limit_ms: int = 100,
    priority: Priority = Priority.STANDARD,
    now_us: int = 0,
    in_flight: int = 0,
    tenant: str = "default",
) -> Admitted | Denied:
    return door.decide(
        lanes or (0,),
        PRICE,
        priority,
        tenant=tenant,
        limit_us=limit_ms * MS,
        in_flight=in_flight,
        now_us=now_us,
    )


def admit(
    door: Door,
    *,
    rows: int,
    limit_ms: int = 100,
    priority: Priority = Priority.STANDARD,
    now_us: int = 0,
    tenant: str = "default",
) -> None:
    deadline_us = now_us + limit_ms * MS
    door.admitted(0, PRICE, priority, rows, deadline_us, tenant=tenant)


def due(load: Load, **ms_by_limit: int) -> Load:
    """The same, with standard work by when it is due: ``within_70=50``."""
    told = [0] * (len(DUE_WITHIN_US) + 1)
    for name, value in ms_by_limit.items():
        limit_us = int(name.removeprefix("within_")) * MS
        told[bisect_left(DUE_WITHIN_US, limit_us)] += value * MS
    queue = QueueLoad(
        model="m",
        version="1",
        priority=Priority.STANDARD,
        requests=1,
        rows=1,
        oldest_us=0,
        backlog_us=sum(told),
        due_us=told,
    )
    return msgspec.structs.replace(load, queues=[*load.queues, queue])
