"""Recorded requests once more, on a platform that serves others meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pyarrow.parquet as pq
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from onnx import numpy_helper

from headrace.broker import KafkaReader, TopicPartition, group_depth
from headrace.clock import SystemClock
from headrace.lifecycle import BusSettings
from headrace.wire import TopicKind
from services.ctl.client import infer_request
from services.ctl.demo import digits
from services.ctl.demo.load import send_all
from services.ctl.instants import shown
from services.ctl.replay import Manner, Outcome, Strictness, replay
from tests.end_to_end.platforms import Direct, Platform, eventually
from tests.models.folders import put_version

pytestmark = pytest.mark.kafka

REQUESTS = 120


class Recording:
    """What was asked of digits_mlp, and a second model that takes the same."""

    def __init__(self, platform: Platform) -> None:
        first = platform.models / "digits_mlp/1/model.onnx"
        put_version(platform.models, "digits_noisy", "1", noisy(first.read_bytes()))
        images, _ = digits.held_out()
        self.images = images[:REQUESTS]
        self.models = [
            Direct(platform.models / name / "1/model.onnx")
            for name in ("digits_mlp", "digits_noisy")
        ]
        began_us = now_us() - 1000
        sent = asyncio.run(
            send_all(
                platform.document.http,
                "/v2/models/digits_mlp/infer",
                [infer_request({"X": image[None]}) for image in self.images],
                connections=8,
                clock=SystemClock(),
                on_answer=lambda: None,
            )
        )
        assert sent.answered == REQUESTS
        self.began, self.ended = shown(began_us), shown(now_us() + 1000)
        platform.await_ready("digits_noisy", "1")
        eventually(lambda: is_committed(platform))

    def directly(self) -> list[dict[str, npt.NDArray[Any]]]:
        return [model({"X": self.images}) for model in self.models]


def now_us() -> int:
    return time.time_ns() // 1000


def is_committed(platform: Platform) -> bool:
    """Whether the formers are through with what was recorded, and with what other
    tests asked before it, and have said so, also of models that nobody asks: their
    first commits come a moment after their topics."""
    bus = BusSettings(bootstrap_servers=platform.document.bootstrap_servers)
    depths = group_depth(
        bus.connection("test"),
        bus.topics.lane_group,
        lambda name: bus.topics.kind_of(name) is TopicKind.REQUESTS,
        20,
    )
    return all(depth.committed == depth.end for depth in depths.values())


def noisy(model: bytes) -> bytes:
    """The same network with weights that are a little off."""
    proto = onnx.load_from_string(model)
    dice = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.ndim == 2 and min(array.shape) > 1:
            noise = dice.normal(0, 1.2 * array.std(), array.shape).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array + noise, tensor.name))
    return proto.SerializeToString()


@pytest.fixture(scope="module")
def recording(platform: Platform) -> Recording:
    return Recording(platform)


@pytest.fixture
def replayed(
    platform: Platform, recording: Recording, capsys: pytest.CaptureFixture[str]
) -> Any:
    def run(**options: object) -> tuple[int, Any]:
        """Exit status, and the document that was printed."""
        chosen = {
            "model": "digits_mlp",
            "from_": recording.began,
            "to": recording.ended,
            **options,
        }
        status = replay(
            bootstrap=platform.document.bootstrap_servers,
            as_json=True,
            **chosen,  # type: ignore[arg-type] - of several types
        )
        return status, json.loads(capsys.readouterr().out)

    return run


def positions(platform: Platform) -> dict[str, Any]:
    """Ends of what ingresses read, and committed offsets by group, but those of bulk,
    which the formers that run it move."""
    bus = BusSettings(bootstrap_servers=platform.document.bootstrap_servers)
    topics = bus.topics
    admin = AdminClient({"bootstrap.servers": bus.bootstrap_servers})
    partitions = [
        TopicPartition(name, number)
        for name, topic in admin.list_topics(timeout=20).topics.items()
        if topics.kind_of(name) is TopicKind.REPLIES
        for number in topic.partitions
    ]
    reader = KafkaReader(bus.connection("test"))
    ends = {one: log.end for one, log in reader.log_ranges(partitions, 20).items()}
    reader.close()
    groups = {each.group_id for each in admin.list_consumer_groups().result().valid}
    committed = {}
    for group in groups:
        asked = ConsumerGroupTopicPartitions(group)
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        committed[group] = {
            (one.topic, one.partition): one.offset
            for one in future.result().topic_partitions
            if one.partition % 4 != 3
        }
    return {"ends": ends, "committed": committed}


def test_a_model_into_itself_is_identical(
    replayed: Any, platform: Platform, tmp_path: Path
) -> None:
    before = positions(platform)
    page = tmp_path / "page.html"

    status, report = replayed(
        manner=Manner(into="1"), outcome=Outcome(diff=True, page=page)
    )

    differences = report["differences"]
    assert (status, report["verdict"], report["compared"]) == (0, "pass", REQUESTS)
    assert differences["identical"] == REQUESTS, differences
    assert "<svg" in page.read_text()
    after = positions(platform)
    assert after == before
    assert sum(after["ends"].values()) > 0


def test_another_model_agrees_as_it_truly_does(
    replayed: Any, recording: Recording, tmp_path: Path
) -> None:
    one, other = recording.directly()
    file = tmp_path / "both.parquet"

    status, report = replayed(
        to="now",
        manner=Manner(into="digits_noisy/1"),
        outcome=Outcome(diff=True, export=file, page=tmp_path / "page.png"),
    )

    agreement = float((one["label"] == other["label"]).mean())
    assert 0.3 < agreement < 1
    assert (status, report["verdict"]) == (1, "fail")
    assert report["passed_over"]["replays"] == REQUESTS
    outputs = report["differences"]["outputs"]
    assert outputs["label"]["agreement"] == agreement
    chosen = [each["probabilities"].argmax(axis=1) for each in (one, other)]
    assert outputs["probabilities"]["agreement"] == (chosen[0] == chosen[1]).mean()
    apart = np.abs(one["probabilities"].astype(float) - other["probabilities"])
    assert outputs["probabilities"]["max_absolute"] == pytest.approx(apart.max())
    assert outputs["probabilities"]["mean_absolute"] == pytest.approx(apart.mean())
    table = pq.read_table(file).to_pylist()
    labels = {tuple(row["input_X"]): row["replayed_label"][0] for row in table}
    expected = {
        tuple(image.tolist()): label
        for image, label in zip(recording.images, other["label"], strict=True)
    }
    assert labels == expected


def test_reading_alone_moves_no_offset_of_anybody(
    replayed: Any, platform: Platform, tmp_path: Path
) -> None:
    before = positions(platform)

    status, written = replayed(outcome=Outcome(export=tmp_path / "recorded.parquet"))

    assert (status, written["exported"], written["warnings"]) == (0, REQUESTS, [])
    assert positions(platform) == before


def test_a_gate_on_agreement_passes_what_chooses_alike(
    replayed: Any, recording: Recording, tmp_path: Path
) -> None:
    one, other = recording.directly()
    agreement = float((one["label"] == other["label"]).mean())

    status, report = replayed(
        manner=Manner(into="digits_noisy/1", limit=REQUESTS),
        outcome=Outcome(diff=True, page=tmp_path / "page.html"),
        strictness=Strictness(within=0.0, agreement=agreement - 0.01),
    )

    assert (status, report["verdict"], report["against"]) == (0, "pass", [])


def test_what_does_not_fit_is_not_sent(replayed: Any, tmp_path: Path) -> None:
    outcome = Outcome(diff=True, page=tmp_path / "page.html")

    status, report = replayed(manner=Manner(into="double/1", limit=5), outcome=outcome)

    assert (status, report["against"]) == (1, ["nothing was compared"])
    assert report["differences"]["reasons"] == {"unfit": 5}
    assert "unknown input 'X'" in report["differences"]["failures"][0]


def test_what_is_too_large_for_a_record_is_replayed_through_the_store(
    replayed: Any,
    platform: Platform,
    payloads: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_BUS__PAYLOAD_STORE", f"file://{payloads}")
    began = shown(now_us() - 1000)
    sent = np.random.default_rng(0).normal(size=(1, 300_000)).astype(np.float32)
    platform.infer("identity_fp32", {"X": sent})
    file = tmp_path / "large.parquet"

    status, report = replayed(
        model="identity_fp32",
        from_=began,
        to="now",
        manner=Manner(into="1"),
        outcome=Outcome(diff=True, export=file, page=tmp_path / "page.html"),
    )

    assert (status, report["differences"]["identical"]) == (0, 1)
    (row,) = pq.read_table(file).to_pylist()
    for name in ("input_X", "output_Y", "replayed_Y"):
        assert np.array_equal(np.asarray(row[name], np.float32), sent[0])
