"""Tensors that are in the payload store."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from headrace.domain import PayloadRef, Tensor
from headrace.errors import PayloadLost, StoreUnavailable
from headrace.payloads import no_store
from headrace.replay import Comparison, Payloads, Recorded
from headrace.replay.export import ParquetExport
from headrace.wire.payloads import dataref_bytes
from tests.replay.builders import SERVED, labels, recorded, replayed, scores

THEN = (labels(3, 5), scores([0.5, 0.5], [1, 0]))
INPUT = bytes(range(32))


class Store:
    """Objects by name."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, *pieces: bytes | memoryview) -> PayloadRef:
        content = self.objects[name] = b"".join(pieces)
        digest = sha256(content).hexdigest()
        return PayloadRef(name, digest, tuple(map(len, pieces)))

    def read(self, ref: PayloadRef) -> memoryview:
        if ref.name not in self.objects:
            raise PayloadLost(f"{ref.name} is gone")
        return memoryview(self.objects[ref.name])


def referring(one: Recorded, store: Store) -> Recorded:
    """The same, whose answer's data are in the store."""
    assert one.ending is not None
    ref = store.put("then", *(each.data for each in one.ending.outputs))
    described = tuple(msgspec.structs.replace(each, data=b"") for each in THEN)
    ending = msgspec.structs.replace(one.ending, outputs=described, payload=ref)
    return msgspec.structs.replace(one, ending=ending)


def asking(one: Recorded, *refs: str) -> Recorded:
    """The same, whose inputs are in the store."""
    record = one.record
    value = record.value or b""
    at = value.index(bytes(32)) - 2
    (ref,) = refs
    return msgspec.structs.replace(
        one,
        record=msgspec.structs.replace(
            record,
            value=value[:at],
            headers=[*record.headers, ("inf-dataref", ref.encode())],
        ),
    )


def test_data_in_the_store_are_compared_like_any() -> None:
    store = Store()
    one = replayed(referring(recorded(*THEN), store), *THEN)
    ref = store.put("now", *(each.data for each in THEN))
    described: tuple[Tensor, ...] = tuple(
        msgspec.structs.replace(each, data=b"") for each in THEN
    )
    one = msgspec.structs.replace(one, outputs=described, payload=ref)
    comparison = Comparison(SERVED)

    comparison.take(Payloads(store.read).with_data(one))

    assert comparison.differences().identical == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_data_that_are_gone_leave_nothing_to_compare(*, is_known: bool) -> None:
    store = Store()
    one = replayed(referring(recorded(*THEN), store), *THEN)
    lost = msgspec.structs.replace(
        replayed(recorded(*THEN, offset=8)), payload=store.put("now", b"")
    )
    store.objects.clear()
    payloads = Payloads(store.read if is_known else no_store)
    comparison = Comparison(SERVED)

    for each in (one, lost):
        comparison.take(payloads.with_data(each))

    found = comparison.differences()
    reason = "payload_lost" if is_known else "store_unavailable"
    told = ["HEADRACE_BUS__PAYLOAD_STORE" in each for each in payloads.warnings]
    assert told == ([] if is_known else [True])
    assert found.ended == {"ok": 1, reason: 1}
    assert (found.compared, found.mended, found.failed) == (0, 0, 1)
    assert found.reasons == {"ok": 1, reason: 1}


def test_inputs_are_exported_from_the_store(tmp_path: Path) -> None:
    store = Store()
    sized = dataref_bytes(store.put("sized", INPUT)).decode()
    whole = sized.partition(";sizes")[0]
    payloads = Payloads(store.read)
    export = ParquetExport(tmp_path / "out.parquet", payloads, is_replayed=False)
    for ref in (sized, whole, whole.replace("sized", "gone", 1)):
        export.take(asking(recorded(), ref))
    export.close()

    columns = pq.read_table(tmp_path / "out.parquet")["input_x"].to_pylist()

    assert [each and len(each) for each in columns] == [8, 8, None]
    with pytest.raises(StoreUnavailable):
        Payloads(no_store).inputs(asking(recorded(), sized))
