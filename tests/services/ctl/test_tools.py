"""What the tools make of records and of people's input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from headrace.broker import Depth, Record, TopicPartition
from headrace.domain import Load, ModelState, Priority, QueueLoad
from headrace.runtime import CUDA_NEEDS
from headrace.wire import (
    Announcement,
    Heartbeat,
    LaneLoad,
    Role,
    ServiceState,
    Topics,
    announcement_key,
    encode_json,
)
from services.ctl.console import Console, fatal_text
from services.ctl.deadletters import LetterRow
from services.ctl.deadletters import _show_rows as show_letters
from services.ctl.doctor import Finding, State, _device
from services.ctl.doctor import _show as show_findings
from services.ctl.models import VersionRow, versions
from services.ctl.models import _show as show_versions
from services.ctl.readiness import ready_sentences
from services.ctl.topics import QueueRow, queues
from services.ctl.topics import _show as show_queues

NAMES = Topics()
_READY = ModelState.READY


def announced(
    slot: int, state: ModelState, *, version: str = "1", **facts: object
) -> Record:
    value = Announcement(model="m", version=version, slot=slot, state=state)
    value = msgspec.structs.replace(value, **facts)
    key = announcement_key("m", version, slot)
    return Record(NAMES.control_models, 0, 0, 0, key, encode_json(value), [])


def test_versions_are_shown_over_all_slots_with_the_slowest_run() -> None:
    records = [
        announced(0, ModelState.LOADING),
        announced(1, ModelState.REFUSED, reason="another sha256"),
        announced(0, ModelState.READY, run_us={1: 1000, 8: 3000}, max_batch=8),
        announced(2, ModelState.READY, run_us={1: 2000, 8: 2500}, max_batch=8),
    ]

    (row,) = versions(records)

    assert row.slots == {"ready": [0, 2], "refused": [1]}
    assert row.reasons == ["another sha256"]
    assert row.run_ms == {1: 2.0, 8: 3.0}
    assert row.max_batch == 8


def test_versions_are_ordered_as_numbers_and_gone_ones_are_left_out() -> None:
    gone = announced(0, ModelState.READY, version="3")
    tombstone = Record(NAMES.control_models, 0, 0, 0, gone.key, None, [])

    rows = versions(
        [
            announced(0, ModelState.READY, version="10"),
            gone,
            announced(0, ModelState.READY, version="9"),
            tombstone,
            Record(NAMES.control_models, 0, 0, 0, b"m/4/0", b"no json", []),
        ]
    )

    assert [row.version for row in rows] == ["9", "10"]


def heard(lane: int, epoch: int, *queued: QueueLoad) -> Record:
    load = LaneLoad(
        lane=lane,
        epoch=epoch,
        active=True,
        load=Load(slots=1, free_us=[0], queues=list(queued)),
        request_us=0,
        control_us=0,
        response_us=0,
    )
    heartbeat = Heartbeat(
        role=Role.BATCH_FORMER,
        slot=0,
        instance="",
        state=ServiceState.READY,
        lanes=(load,),
    )
    return Record(NAMES.status, 0, 0, 0, b"", encode_json(heartbeat), [])


def test_a_queue_is_the_log_beside_what_its_owner_says() -> None:
    bulk = TopicPartition(NAMES.requests("m"), 3)
    unowned = TopicPartition(NAMES.requests("m"), 6)
    load = QueueLoad(
        model="m",
        version="1",
        priority=Priority.BULK,
        requests=7,
        rows=9,
        oldest_us=1500,
        backlog_us=0,
    )

    rows = queues(
        NAMES,
        {bulk: Depth(0, 12, 4), unowned: Depth(0, 2, None)},
        [heard(0, 5, load), heard(0, 4)],
        {},
    )

    assert rows == [
        QueueRow(
            model="m",
            lane=0,
            priority="bulk",
            waiting=8,
            committed=4,
            end=12,
            held=7,
            oldest_ms=1.5,
        ),
        QueueRow(
            model="m",
            lane=1,
            priority="standard",
            waiting=2,
            committed=None,
            end=2,
            held=None,
            oldest_ms=None,
        ),
    ]


def test_the_ready_lines_say_what_is_served_and_what_is_not() -> None:
    rows = versions(
        [
            announced(0, ModelState.READY),
            announced(0, ModelState.READY, version="2"),
            announced(0, ModelState.REFUSED, version="v3", reason="no number"),
        ]
    )

    assert ready_sentences(["http://h:1"], Path("/models"), rows) == [
        "ready: http://h:1 serves 1 model from /models (Ctrl-C ends it)",
        "refused: m/v3: no number",
    ]


def test_the_ready_lines_say_what_to_do_without_a_model() -> None:
    first, next_step = ready_sentences(["http://h:1"], Path("/models"), [])

    assert first == "ready: http://h:1 serves 0 models from /models (Ctrl-C ends it)"
    assert next_step.startswith("no model is served: put one into /models as MODEL/V")


def test_the_ready_lines_name_a_model_folder_without_versions(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "model.onnx").touch()

    sentences = ready_sentences([], tmp_path, versions([announced(0, _READY)]))

    (bare,) = sentences[1:]
    assert bare == (
        "not served: flat: it has no version folder; put its files into "
        f"{tmp_path}/flat/1"
    )


def test_doctor_says_how_to_get_cuda_without_saying_that_it_was_asked_for() -> None:
    finding = _device()

    on_cuda = ("models run on CUDA", "")
    on_cpu = ("models run on the CPU", f"for CUDA {CUDA_NEEDS}")
    assert (finding.found, finding.remedy) in {on_cuda, on_cpu}


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("_narrow")
def test_a_table_of_queues_is_whole_at_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = "a-model-with-a-name-" * 4
    row = QueueRow(model, 0, "interactive", 123456, 1234567890, 1234567890, 12, 99999.0)

    show_queues([row])

    out = capsys.readouterr().out
    for word in ("priority", "interactive", "committed", "1234567890", "oldest ms"):
        assert word in out
    assert model in "".join(line[:12].strip() for line in out.splitlines()[3:])
    assert "…" not in out


@pytest.mark.usefixtures("_narrow")
def test_names_run_times_and_remarks_are_whole_at_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warning = "a [warning] of many words " * 5
    run_ms = {1: 0.123, 2: 12.34, 3: 123.4, 32: 12345.6}
    rows = [
        VersionRow(
            model=name,
            version="1",
            slots={"ready": [0, 1], "loading": [2]},
            reasons=[],
            warnings=[warning],
            max_batch=32,
            latency_objective_ms=None,
            run_ms=run_ms,
            sha256="",
        )
        for name in ("a-long-name-" * 8, "a_name_of_24_characters_")
    ]

    show_versions(rows)

    told = capsys.readouterr().out
    words = told.split()
    for whole in ("1:0.123", "2:12.3", "3:123", "32:12346"):
        assert words.count(whole) == 2
    assert f"\n{rows[0].model}/1: {warning}\n" in told
    table = told.partition(warning)[0].splitlines()[:-1]
    assert all(len(line) <= 80 for line in table)
    assert any(line.strip().startswith(f"{rows[1].model} ") for line in table)


@pytest.mark.usefixtures("_narrow")
def test_what_doctor_found_is_whole_at_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, remedy = "a-[path]/" * 20, "install it, " * 20

    show_findings([Finding("java", State.MISSING, found, remedy)])

    first, second = capsys.readouterr().out.splitlines()
    assert first.split(maxsplit=2) == ["java", "missing", found]
    assert second.strip() == remedy.strip()


@pytest.mark.usefixtures("_narrow")
def test_a_list_of_dead_letters_is_whole_at_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = "headrace.deadletters.a-model-with-a-name/0/123456"
    text = "run failed: " + "a reason [of] many words " * 8
    row = LetterRow("0" * 32, "t", "m", "failed", text, 3, 10**15, place, "source/0/1")

    show_letters([row])

    out = capsys.readouterr().out
    for whole in ("0" * 32, place, text.strip(), "m: failed after 3 attempts"):
        assert whole in out


def test_every_line_of_the_merged_log_has_a_time_and_shows_where_values_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console()
    event = {
        "event": "model.refused",
        "level": "warning",
        "timestamp": "2026-01-02T03:04:05.678901Z",
        "model": "m",
        "text": "no such file",
        "rows": 3,
        "exception": "Traceback:\n  line 1",
    }

    console.line("gpu-worker.0", json.dumps(event))
    console.line("ingress.0", "Segmentation fault")
    console.line("ingress.0", "{no json")
    console.line("ingress.0", '{"json": "of another kind"}')

    lines = capsys.readouterr().err.splitlines()
    named = "gpu-worker.0    03:04:05.678Z"
    assert lines[:3] == [
        f'{named} warning model.refused model=m text="no such file" rows=3',
        f"{named} Traceback:",
        f"{named}   line 1",
    ]
    untimed = [
        re.fullmatch(r"ingress\.0 {7}\d\d:\d\d:\d\d\.\d{3}Z (.*)", line)
        for line in lines[3:]
    ]
    assert [found and found[1] for found in untimed] == [
        "Segmentation fault",
        "{no json",
        '{"json": "of another kind"}',
    ]


def test_what_ends_a_process_is_told_from_what_it_lives_with() -> None:
    assert (
        fatal_text('{"event": "setup.refused", "level": "critical", "text": "why"}')
        == "why"
    )
    assert (
        fatal_text('{"event": "process.failed", "level": "critical"}')
        == "process.failed"
    )
    assert fatal_text('{"event": "model.refused", "level": "error", "text": "x"}') == ""
    assert fatal_text("critical") == ""
