"""The comparison with other servers, as far as it is arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headrace.errors import SetupError
from loadtest.figures import figures_of
from loadtest.peers import comparing, report
from loadtest.peers.comparing import Failure, Step, plan, verdicts
from loadtest.peers.forms import Form, Response, plain_json, raw, rows, v2
from loadtest.peers.killing import killed
from loadtest.peers.measuring import Measurement
from loadtest.peers.report import Document, read_document, write_document
from loadtest.stream import Outcome
from tests.loadtest.builders import Ended, the_records

RESET = Outcome(-1)
REFUSED = Outcome(503)
FAILED = Outcome(500)


def a_measurement(
    system: str,
    answered: int,
    *,
    form: str = "binary",
    scenario: str = "tiny",
    run: str = "64 connections",
    number: int = 0,
) -> Measurement:
    records = the_records([Ended(at, 10) for at in range(answered)])
    return Measurement(
        system,
        form,
        scenario,
        run,
        number,
        figures_of(records, "model", sent_s=1, slo_ms=100),
        cpu_us=100.0,
        memory_mb=50.0,
        foreign_cores=0.0,
        bare=None if scenario == "tiny" else 200.0,
        killed=None,
    )


def test_every_round_begins_with_another_system_and_asks_all_the_same() -> None:
    steps = list(plan(["tiny", "kill"], ["a", "b"], range(1, 3)))
    assert steps[:4] == [
        Step("tiny", 1, "b"),
        Step("tiny", 1, "a"),
        Step("kill", 1, "b"),
        Step("kill", 1, "a"),
    ]
    assert [each.system for each in steps[4:6]] == ["a", "b"]
    assert len(set(steps)) == 8


def test_a_ratio_is_the_median_over_rounds_of_both_in_one_form() -> None:
    found = [
        a_measurement("Headrace", 30, number=0),
        a_measurement("Headrace", 80, number=1),
        a_measurement("Headrace", 60, number=2),
        a_measurement("Headrace", 10, form="JSON", number=0),
        a_measurement("Headrace fused", 1, number=3),
        a_measurement("Triton", 100, number=0),
        a_measurement("Triton", 100, number=1),
        a_measurement("Triton", 60, number=2),
        a_measurement("Triton", 1, number=3),
    ]
    verdict, fused = verdicts(found)
    assert (fused.ours, fused.ratio, fused.held) == ("Headrace fused", 1.0, True)
    assert (verdict.peer, verdict.forms, verdict.ratio) == ("Triton", "binary", 0.8)
    assert verdict.held
    assert str(verdict).startswith(
        "held: Headrace 0.80x Triton at 64 connections (binary)"
    )


def test_a_peer_with_json_alone_is_met_in_both_forms() -> None:
    found = [
        a_measurement("Headrace", 60),
        a_measurement("Headrace", 40, form="JSON"),
        a_measurement("LitServe", 10, form="JSON"),
    ]
    assert [(each.forms, each.ratio, each.held) for each in verdicts(found)] == [
        ("binary against its JSON", 6.0, True),
        ("JSON", 4.0, False),
    ]


def test_a_row_holds_what_was_measured_of_one_system_in_one_form() -> None:
    records = the_records([Ended(0, 10), Ended(4000, 10, RESET)])
    lost = killed(records, at_s=3, end_s=5, slo_ms=100)
    found = [
        a_measurement("LitServe", 40, form="JSON"),
        a_measurement("Headrace", 60),
        a_measurement("Headrace", 90, scenario="accelerator", run="128 connections"),
        msgspec.structs.replace(
            a_measurement("LitServe", 1, form="JSON", scenario="kill", run="killed"),
            killed=lost,
        ),
    ]
    ours, theirs = (
        dict(zip(reversed(comparing.HEADINGS), reversed(row), strict=True))
        for row in comparing.rows(found)
    )
    assert (ours["system"], ours["64/s"], ours["of bare"]) == (
        "Headrace",
        "60",
        "0.450",
    )
    assert (ours["2x"], ours["lost"]) == ("", "")
    assert (theirs["system"], theirs["form"], theirs["64/s"]) == (
        "LitServe",
        "JSON",
        "40",
    )
    assert (theirs["lost"], theirs["of"], theirs["first"]) == ("1", "1", "never")


def test_a_kill_costs_what_was_taken_and_not_answered() -> None:
    ends = [
        Ended(0, 10),
        Ended(900, 10),
        Ended(990, 20, RESET),
        Ended(1000, 300, FAILED),
        Ended(1100, 1, REFUSED),
        Ended(1300, 500),
        Ended(1600, 10),
        Ended(1900, 10),
    ]
    found = killed(the_records(ends), at_s=1, end_s=2, slo_ms=100)
    assert (found.sent, found.lost, found.refused, found.late) == (5, 2, 1, 1)
    assert found.before == pytest.approx(2 / 3)
    assert found.first_s == pytest.approx(0.61)
    assert found.again_s == 0.5


def test_who_never_recovers_has_no_time_of_recovery() -> None:
    ends = [Ended(0, 10), Ended(1200, 10, RESET), Ended(1900, 10, RESET)]
    found = killed(the_records(ends), at_s=1, end_s=2, slo_ms=100)
    assert (found.first_s, found.again_s, found.lost) == (None, None, 2)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (raw("/"), b""),
        (plain_json("/predict", "]}"), b'{"y":%s}'),
        (plain_json("/predict", "]]", batched=True), b"[%s]"),
        (v2("JSON", "]}]}"), b'{"outputs":[{"name":"y","data":%s}]}'),
    ],
)
def test_an_echo_is_understood_and_ends_as_foretold(form: Form, body: bytes) -> None:
    row = rows()[3]
    text = json.dumps(row[0].tolist(), separators=(",", ":")).encode()
    answer = body % text if body else row.tobytes()
    assert np.array_equal(form.values(Response({}, answer)), row[0])
    assert answer.endswith(form.end(row))
    wire = form.prepared(row, echoed=False)
    assert wire.answer_end == b""
    head, _, sent = wire.wire.partition(b"\r\n\r\n")
    assert f"content-length: {len(sent)}".encode() in head


def test_rows_end_differently_so_that_a_mixed_up_answer_is_seen() -> None:
    form = plain_json("/", "]}")
    assert len({form.end(row) for row in rows()}) == 64


def test_a_later_run_adds_to_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Document(failures=[Failure("KServe", "tiny", "no <module> named x")])
    document.measurements.append(a_measurement("Headrace", 60))
    document.measurements.append(a_measurement("Triton", 30, number=0))
    page = write_document(tmp_path, document).read_text("utf-8")
    assert "Headrace 2.00x Triton" in page
    assert "no &lt;module&gt; named x" in page
    again = read_document(tmp_path)
    assert (again.rounds, again.measurements) == (1, document.measurements)
    monkeypatch.setattr(report, "machine", lambda: "another one")
    with pytest.raises(SetupError, match="another machine"):
        read_document(tmp_path)
