"""Whatever a forged record says, as long as it decodes, is folded without a fault."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.admission import AdmissionSettings
from headrace.domain import (
    Arrived,
    Price,
    Priority,
    SlotChanged,
    Ticked,
    VersionChanged,
)
from headrace.errors import RequestError, UndecodableRecord
from headrace.registry import Catalog
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.wire import JSON_HEADERS, Announcement, Heartbeat, Record, decode_json
from services.ingress.admitting import Admission
from services.ingress.fleet import Destination, Fleet
from services.ingress.parsing import RequestParser
from tests.scheduling.scenes import a_request
from tests.services.ingress.models import a_parser

EDGES = [-(10**30), -(2**63), -2, -1, 0, 1, 2, 4096, 2**31 - 1, 2**53, 2**63, 10**30]
NUMBERS = st.sampled_from([*EDGES, 1e308]) | st.floats() | st.integers(0, 40)
NAMES = st.sampled_from(["m", "x", "", "a/b", "1", "07", "9" * 18, "9" * 5000, "٣"])
AXES = st.dictionaries(NAMES, NUMBERS, max_size=2)
SPECS = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "datatype": st.sampled_from(["INT64", "BYTES", "WAT"]),
            "shape": st.lists(NUMBERS, max_size=3),
        }
    ),
    max_size=2,
)
ANNOUNCED = {
    "version": NAMES,
    "slot": NUMBERS,
    "state": st.sampled_from(["ready", "loading", "unloading", "refused"]),
    "max_batch": NUMBERS,
    "batch_axes": AXES,
    "latency_objective_ms": NUMBERS,
    "run_us": st.dictionaries(NUMBERS.map(str), NUMBERS, max_size=3),
    "signature": st.fixed_dictionaries({"inputs": SPECS, "outputs": SPECS}),
    "padding": st.fixed_dictionaries(
        {
            "axis": NAMES,
            "values": AXES,
            "input_axes": AXES,
            "output_axes": AXES,
            "edges": st.lists(NUMBERS, max_size=3),
        }
    ),
}
HEARD = {
    "lane": NUMBERS,
    "epoch": NUMBERS,
    "request_us": NUMBERS,
    "control_us": NUMBERS,
    "response_us": NUMBERS,
}
LOADED = {
    "slots": NUMBERS,
    "free_us": st.lists(NUMBERS, max_size=3).map(sorted),
    "queues": st.lists(
        st.fixed_dictionaries(
            {
                "model": NAMES,
                "version": NAMES,
                "priority": st.integers(0, 3),
                "requests": NUMBERS,
                "rows": NUMBERS,
                "oldest_us": NUMBERS,
                "backlog_us": NUMBERS,
                "due_us": st.lists(NUMBERS, max_size=30),
            }
        ),
        max_size=2,
    ),
    "prices": st.lists(
        st.fixed_dictionaries(
            {
                "model": NAMES,
                "version": NAMES,
                "row_us": NUMBERS,
                "batch_us": NUMBERS,
                "one_us": NUMBERS,
                "room": st.dictionaries(NAMES, NUMBERS, max_size=2),
            }
        ),
        max_size=2,
    ),
}
SPEC = {"name": "x", "datatype": "INT64", "shape": [-1, 2]}
TRUE_ANNOUNCEMENT = {
    "model": "m",
    "version": "1",
    "slot": 0,
    "state": "ready",
    "signature": {"inputs": [SPEC], "outputs": [SPEC]},
    "max_batch": 8,
    "batch_axes": {"x": 0},
    "run_us": {"1": 1000},
}
TRUE_LANE = {
    "lane": 0,
    "epoch": 1,
    "active": True,
    "request_us": 0,
    "control_us": 0,
    "response_us": 0,
}


def some_of(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict]:
    """Few at a time, so that many records decode."""
    return st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
    )


def a_record(content: dict[str, Any]) -> Record:
    value = json.dumps(content).encode()
    return Record("t", 0, 0, 1, None, value, list(JSON_HEADERS))


@given(forged=some_of(ANNOUNCED))
def test_an_announcement_stops_neither_an_ingress_nor_a_former(
    forged: dict[str, Any],
) -> None:
    try:
        said = decode_json(Announcement, a_record(TRUE_ANNOUNCEMENT | forged))
    except UndecodableRecord:
        return
    catalog, former = Catalog(), BatchFormer(SchedulingSettings(), batch_ids=iter("ab"))
    fleet = Fleet(1, a_parser)
    true = decode_json(Announcement, a_record(TRUE_ANNOUNCEMENT | {"slot": 1}))
    for each in (true, said):
        catalog.apply(each)
        fleet.announced(each)
    fleet.starting = False
    fleet.versions()
    worker = {"role": "gpu_worker", "instance": "w", "state": "ready"}
    heard = decode_json(Heartbeat, a_record(worker | {"slot": said.slot}))
    fleet.heard(heard, 1)
    fleet.refresh()
    admission = Admission(AdmissionSettings(), fleet.router)
    try:
        destination = fleet.resolve("m")
    except RequestError:
        pass
    else:
        assert isinstance(destination.parser, RequestParser)
        admission.sent(0, destination, Priority.STANDARD, 1, 1_000, tenant="t")
    for served in catalog.served():
        former.handle(VersionChanged(served), 0)
        former.handle(Arrived(a_request()), 0)
        former.handle(SlotChanged(said.slot, 2, ()), 0)
        former.handle(Ticked(), 0)
        former.load(1)


@given(forged=some_of(HEARD), loaded=some_of(LOADED))
def test_a_heartbeat_stops_no_ingress(
    forged: dict[str, Any], loaded: dict[str, Any]
) -> None:
    lane = TRUE_LANE | forged | {"load": {"slots": 1} | loaded}
    content = {
        "role": "batch_former",
        "slot": 0,
        "instance": "f",
        "state": "ready",
        "lanes": [lane],
    }
    try:
        said = decode_json(Heartbeat, a_record(content))
    except UndecodableRecord:
        return
    catalog = Catalog()
    catalog.apply(decode_json(Announcement, a_record(TRUE_ANNOUNCEMENT)))
    (served,) = catalog.served()
    fleet = Fleet(1, a_parser)
    fleet.heard(said, 1)
    fleet.refresh()
    admission = Admission(AdmissionSettings(), fleet.router)
    admission.heard(said, 1)
    price = Price(model=served.model, version="1", row_us=1, batch_us=1, one_us=1)
    lanes = frozenset(fleet.router.lanes)
    destination = Destination(served, a_parser(served), lanes, price)
    for priority in Priority:
        admission.sent(
            said.lanes[0].lane, destination, priority, 8, 5_000_001, tenant="t"
        )
        admission.decide(
            destination,
            priority,
            tenant="default",
            limit_us=5_000_000,
            in_flight=1,
            now_us=2,
        )
