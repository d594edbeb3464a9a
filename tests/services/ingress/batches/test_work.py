"""From a batch's lines to its records, and from answers to its two files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.domain import Datatype, Reason, Tensor
from headrace.jobs.answers import Part
from headrace.jobs.desk import LOST, Desk
from headrace.jobs.outputs import RowError
from headrace.jobs.work import Answer
from headrace.wire import decode_plain_request
from headrace.wire import headers as names
from headrace.wire.jobs import RowRange
from services.ingress.batches.checking import Checker
from services.ingress.batches.reading import Line, LineChunk, Lines
from services.ingress.batches.store import FileStore, new_file_id, of_batch
from services.ingress.batches.work import BatchOutput, LineMaker
from tests.services.ingress.batches.jobs import TENANT, a_spec
from tests.services.ingress.batches.lines import ENDPOINT, a_body, a_line, a_parser

BATCH = "batch_" + "1" * 32


def a_checker(*repeated: int) -> Checker:
    return Checker(a_parser(), ENDPOINT, repeated)


def a_result(*values: float) -> tuple[Tensor, ...]:
    return (Tensor("y", Datatype.FP32, (1, 2), np.float32(values).tobytes()),)


def make(lines: Sequence[Line], desk: Desk[str], payload_bytes_max: int = 4096) -> Any:
    maker = LineMaker(a_spec(BATCH), a_checker(), "results", payload_bytes_max)
    return list(maker.records(LineChunk(0, list(lines)), desk))


def test_each_good_line_becomes_a_record_of_its_own() -> None:
    desk: Desk[str] = Desk()
    two = a_body([1, 2, 3, 4], [2, 2], id="mine")
    records = make([a_line(0), Line(1, 3, b"{"), a_line(2, body=two)], desk)

    assert [record.rows for record in records] == [RowRange(0, 1), RowRange(2, 1)]
    headers = dict(records[1].headers)
    assert headers[names.CE_ID] == f"{BATCH}.2+1".encode()
    assert (headers[names.ROWS], headers[names.ITEM]) == (b"2", b"2")
    request = decode_plain_request(records[1].value)
    assert (request.client_id, request.inputs[0].shape) == ("mine", (2, 2))
    desk.answered(RowRange(0, 1), "a")
    assert [part.first for part in desk.take()] == [0, 1]
    assert desk.failed == 1


def test_a_request_that_no_record_holds_is_told() -> None:
    desk: Desk[str] = Desk()
    assert make([a_line(0)], desk, payload_bytes_max=10) == []
    (part,) = desk.take()
    assert isinstance(part.answer, RowError)
    assert "payload_bytes_max" in part.answer.text


def test_a_line_that_an_earlier_publisher_knew_to_be_bad_ends_when_it_is_missed() -> (
    None
):
    desk: Desk[str] = Desk(start=3)
    maker = LineMaker(a_spec(BATCH), a_checker(), "results", 4096)
    chunk = LineChunk(0, [a_line(0), Line(1, 2, b"{"), a_line(2)])
    (gap,) = desk.missing()

    again = list(maker.again(chunk, gap, desk))

    assert [record.rows.first for record in again] == [0, 2]
    assert desk.missing() == [RowRange(0, 1), RowRange(2, 1)]


def write(
    tmp_path: Path, lines: Sequence[Line], answers: Sequence[Answer], *repeated: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of the file of results, and of that of errors."""
    store = FileStore(str(tmp_path))
    given = store.begin(TENANT, new_file_id("0" * 32))
    given.write(b"\n".join(line.data or b"" for line in lines))
    given.keep("in.jsonl", "batch")
    spec = a_spec(BATCH)
    assert spec.batch is not None
    ids = [of_batch(BATCH, "output"), of_batch(BATCH, "errors")]
    order = type(spec.batch)(ENDPOINT, given.id, ids[0], ids[1], "24h")
    opened = Lines(lambda: store.open(TENANT, given.id), 10_000)
    output = BatchOutput(spec, order, store, opened, a_checker(*repeated))
    for item, answer in enumerate(answers):
        output.add(Part(item, 1, 0, answer))
    output.put()
    output.drop()
    found = []
    for file_id in ids:
        text = b""
        if store.describe(TENANT, file_id) is not None:
            with store.open(TENANT, file_id) as file:
                text = file.read()
        found.append([json.loads(each) for each in text.splitlines()])
    return found[0], found[1]


def test_every_line_ends_in_one_of_the_files(tmp_path: Path) -> None:
    lines = [
        a_line(0, body=a_body([1, 2], id="mine")),
        Line(1, 2, b"nonsense"),
        a_line(2, body=a_body([1, 2, 3])),
        a_line(3),
        a_line(4),
        a_line(5),
        a_line(6),
        a_line(7, custom_id="id-0"),
    ]
    bad = RowError(Reason.INVALID, "as the publisher found it")
    answers: list[Answer] = [
        a_result(3, float("nan")),
        bad,
        bad,
        RowError(Reason.POISON, "the runtime refused it"),
        RowError(Reason.EXPIRED, "too late"),
        RowError(Reason.CANCELLED, "taken back"),
        RowError(LOST, "no outcome"),
        bad,
    ]
    results, errors = write(tmp_path, lines, answers, 7)

    (result,) = results
    assert (result["custom_id"], result["error"]) == ("id-0", None)
    response = result["response"]
    assert (response["status_code"], response["request_id"]) == (200, f"{BATCH}.0+1")
    body = response["body"]
    assert (body["model_name"], body["id"]) == ("m", "mine")
    assert body["outputs"][0]["data"][0] == 3
    assert np.isnan(body["outputs"][0]["data"][1])

    told = [
        (each["custom_id"], each["error"]["code"], each["error"]["line"])
        for each in errors
    ]
    assert told == [
        (None, "invalid_json_line", 2),
        ("id-2", "invalid", 3),
        ("id-3", "poison", 4),
        ("id-4", "batch_expired", 5),
        ("id-5", "batch_cancelled", 6),
        ("id-6", "lost", 7),
        ("id-0", "duplicate_custom_id", 8),
    ]
    answered = [each["response"] for each in errors]
    assert [each and each["status_code"] for each in answered] == [
        None,
        400,
        400,
        None,
        None,
        None,
        None,
    ]
    assert answered[2]["body"] == {"error": "the runtime refused it"}
    assert len({each["id"] for each in [*results, *errors]}) == len(lines)


def test_a_file_without_a_line_is_not_there(tmp_path: Path) -> None:
    assert write(tmp_path / "a", [a_line(0)], [a_result(1, 2)])[1] == []
    told = RowError(Reason.EXPIRED, "")
    assert write(tmp_path / "b", [a_line(0)], [told])[0] == []


def test_an_output_that_was_asked_for_comes_alone(tmp_path: Path) -> None:
    body = a_body([1, 2], outputs=[{"name": "y"}])
    extra = Tensor("z", Datatype.FP32, (1, 1), b"\0\0\0\0")
    lines = [a_line(0, body=body), a_line(1, body=body)]
    results, errors = write(tmp_path, lines, [(*a_result(1, 2), extra), (extra,)])
    outputs = results[0]["response"]["body"]["outputs"]
    assert [output["name"] for output in outputs] == ["y"]
    assert errors[0]["error"]["code"] == "model_error"
