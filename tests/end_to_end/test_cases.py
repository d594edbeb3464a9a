"""Situations from public reports about other servers, each with its right answer."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from services.ctl.client import Answer, Connection, infer_request, tensors_of
from tests.end_to_end.platforms import Platform, Wire, eventually, occupied
from tests.models import graphs, zoo
from tests.models.folders import put_version

pytestmark = pytest.mark.kafka


async def at_once(
    platform: Platform, model: str, inputs: Sequence[Mapping[str, Any]]
) -> list[Answer]:
    """One request each, on connections of their own, within a moment."""
    connections = [Connection(platform.url) for _ in inputs]
    answers = await asyncio.gather(
        *(
            connection.post(f"/v2/models/{model}/infer", infer_request(one))
            for connection, one in zip(connections, inputs, strict=True)
        )
    )
    for connection in connections:
        connection.close()
    return list(answers)


async def together(
    platform: Platform, model: str, inputs: Sequence[Mapping[str, Any]]
) -> tuple[list[Answer], range]:
    """One request each, all of which wait before one of them leaves; and how many runs
    they took, from and to: what stands still for longer than a lease is run again."""
    before = platform.runs_of(model)
    async with asyncio.TaskGroup() as group:
        with occupied(platform):
            asking = group.create_task(at_once(platform, model, inputs))
            await asyncio.to_thread(platform.await_queued, model, len(inputs))
            lapsed = platform.former_value("leases_lapsed_total")
    answers = asking.result()
    lapses = round(platform.former_value("leases_lapsed_total") - lapsed)
    runs = platform.runs_of(model) - before
    return answers, range(runs - lapses, runs + 1)


def looked_up(index: int) -> dict[str, Any]:
    return {"IDX": np.array([[index]], np.int64)}


# One bad member of a batch.


@pytest.mark.parametrize("bad", [{0}, {3}, {7}, {2, 5}, set(range(8)), set()])
async def test_a_bad_member_fails_alone(platform: Platform, bad: set[int]) -> None:
    for _ in range(3):
        asked = [10**6 if place in bad else place for place in range(8)]
        answers = await at_once(platform, "lookup", [looked_up(i) for i in asked])

        for place, answer in enumerate(answers):
            if place in bad:
                assert answer.status == 400, answer.error()
                assert answer.headers["headrace-reason"] == "poison"
                assert answer.headers["headrace-request-id"]
            else:
                assert answer.status == 200, answer.error()
                row = [4.0 * place + column for column in range(4)]
                assert tensors_of(answer)["Y"].tolist() == [row]


async def test_one_bad_member_among_32_costs_eleven_runs(platform: Platform) -> None:
    asked = [10**6 if place == 21 else place % 10 for place in range(32)]
    answers, runs = await together(platform, "lookup32", [looked_up(i) for i in asked])

    statuses = [answer.status for answer in answers]
    assert statuses == [400 if place == 21 else 200 for place in range(32)]
    assert answers[21].headers["headrace-reason"] == "poison"
    for place, answer in enumerate(answers):
        if place != 21:
            row = [4.0 * (place % 10) + column for column in range(4)]
            assert tensors_of(answer)["Y"].tolist() == [row]
    assert 11 in runs


# NaN and infinity.


async def test_not_a_number_is_kept_and_the_neighbour_unharmed(
    platform: Platform,
) -> None:
    values = np.array([[-1, 0, 1, np.inf]], np.float32)
    good = np.array([[1, 1, 1, 1]], np.float32)

    odd, neighbour = await at_once(platform, "log", [{"X": values}, {"X": good}])

    with np.errstate(all="ignore"):
        want = np.log(values)
    assert np.array_equal(tensors_of(odd)["Y"], want, equal_nan=True)
    assert tensors_of(neighbour)["Y"].tolist() == [[0, 0, 0, 0]]


def fp32(data: str, shape: str = "[1,1]") -> bytes:
    return (
        f'{{"inputs":[{{"name":"X","datatype":"FP32","shape":{shape},"data":{data}}}]}}'
    ).encode()


def test_json_carries_the_three_bare_tokens_both_ways(platform: Platform) -> None:
    body = fp32("[NaN,Infinity,-Infinity,1.5]", "[1,4]")

    answer = platform.post("identity_fp32/infer", body)

    assert answer.status_code == 200, answer.text
    assert '"data":[NaN,Infinity,-Infinity,1.5]' in answer.text.replace(" ", "")
    data = json.loads(answer.text)["outputs"][0]["data"]
    assert np.array_equal(data, [np.nan, np.inf, -np.inf, 1.5], equal_nan=True)


@pytest.mark.parametrize("value", ["1e400", "null", '"NaN"', "true", "[]", "{}"])
def test_what_is_no_number_is_refused(platform: Platform, value: str) -> None:
    answer = platform.post("identity_fp32/infer", fp32(f"[{value}]"))

    assert answer.status_code == 400
    assert "X" in answer.json()["error"]


# Zero-length and absurd shapes.


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ("[0,4]", "[]"),
        ("[1,0]", "[]"),
        ("[]", "[1]"),
        ("[-1,4]", "[1,2,3,4]"),
        ("[2147483648,2147483648]", "[]"),
        ('["1",4]', "[1,2,3,4]"),
        ("[1.0,4]", "[1,2,3,4]"),
        ("[true,4]", "[1,2,3,4]"),
        ("[4,1]", "[1,2,3]"),
        (str([1] * 1000), "[1]"),
        ("[33,1]", str([1.0] * 33)),
    ],
)
def test_absurd_shapes_are_refused(platform: Platform, shape: str, data: str) -> None:
    for model in ("identity_fp32", "rowmean"):
        answer = platform.post(f"{model}/infer", fp32(data, shape))

        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]


def test_an_overflowing_shape_is_refused_before_anything_is_allocated(
    platform: Platform,
) -> None:
    header = (
        b'{"inputs":[{"name":"X","datatype":"FP32","shape":[4294967297,1],'
        b'"parameters":{"binary_data_size":4}}]}'
    )

    answer = platform.post(
        "identity_fp32/infer",
        header + b"\0" * 4,
        inference_header_content_length=str(len(header)),
    )

    assert answer.status_code == 400
    assert "X" in answer.json()["error"]


def test_more_rows_than_a_batch_holds_name_the_limit(platform: Platform) -> None:
    answer = platform.post("lookup/infer", lookups(9))

    assert answer.status_code == 400
    assert "8" in answer.json()["error"]
    assert platform.post("lookup/infer", lookups(8)).status_code == 200


def lookups(rows: int) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "IDX", "datatype": "INT64", "shape": [rows, 1], "data": [1] * rows}
        ]
    }


# Byte counts in the binary extension.


FOUR = np.arange(4, dtype=np.float32).tobytes()


def binary(size: object, **facts: object) -> bytes:
    tensor = {
        "name": "X",
        "datatype": "FP32",
        "shape": [1, 4],
        "parameters": {"binary_data_size": size},
        **facts,
    }
    return json.dumps({"inputs": [tensor]}).encode()


def length_header(value: object) -> str:
    return f"inference-header-content-length: {value}"


SIZES: list[object] = [15, 17, 0, -1, 2**31, 2**63, "16", 16.0]


@pytest.mark.parametrize("size", SIZES)
def test_a_wrong_size_is_refused_and_the_connection_stays_in_step(
    platform: Platform, size: object
) -> None:
    header = binary(size)
    check_refused(platform, header + FOUR, length_header(len(header)))


@pytest.mark.parametrize(
    "length",
    ["missing", "0", "short", "long", "beyond", "abc", "-1", "twice"],
)
def test_a_wrong_header_length_is_refused(platform: Platform, length: str) -> None:
    # Not a multiple of four, so that taken as one raw tensor it is wrong as well.
    header = binary(16) + b" "
    header += b" " * (len(header) % 4 == 0)
    right = len(header)
    headers = {
        "missing": [],
        "short": [length_header(right - 1)],
        "long": [length_header(right + 1)],
        "beyond": [length_header(right + len(FOUR) + 1)],
        "twice": [length_header(right), length_header(right)],
    }.get(length, [length_header(length)])
    check_refused(platform, header + FOUR, *headers)


def test_two_sources_of_data_and_bytes_left_over_are_refused(
    platform: Platform,
) -> None:
    both = binary(16, data=[1, 2, 3, 4])
    check_refused(platform, both + FOUR, length_header(len(both)))
    header = binary(16)
    check_refused(platform, header + FOUR + b"x" * 20, length_header(len(header)))


def check_refused(platform: Platform, body: bytes, *headers: str) -> None:
    good = binary(16)
    with closing(Wire(platform.url, "identity_fp32")) as wire:
        began = time.monotonic()
        wire.send(body, *headers)
        refused = wire.answer()
        took_s = time.monotonic() - began
        wire.send(good + FOUR, length_header(len(good)))
        answer = wire.answer()

    assert refused is not None
    assert refused[0] == 400
    assert json.loads(refused[1])["error"]
    # Not by the time limit of a body that does not come: `http_body_timeout_ms`.
    assert took_s < 9
    # Closed, or usable: never out of step.
    assert answer is None or answer[0] == 200


def test_swapped_sizes_that_add_up_are_refused(platform: Platform) -> None:
    def tensor(name: str, size: int) -> dict[str, Any]:
        return {
            "name": name,
            "datatype": "INT32",
            "shape": [1, 16],
            "parameters": {"binary_data_size": size},
        }

    header = json.dumps(
        {"inputs": [tensor("INPUT0", 60), tensor("INPUT1", 68)]}
    ).encode()
    answer = platform.post(
        "addsub/infer",
        header + b"\0" * 128,
        inference_header_content_length=str(len(header)),
    )

    assert answer.status_code == 400
    assert "INPUT0" in answer.json()["error"]
    assert "64" in answer.json()["error"]


def test_a_body_that_ends_early_is_closed_or_refused(platform: Platform) -> None:
    header = binary(16)
    wire = Wire(platform.url, "identity_fp32")
    wire.send(header + FOUR, length_header(len(header)), length=len(header + FOUR) + 10)
    wire.half_close()
    answer = wire.answer()
    wire.close()

    assert answer is None or answer[0] in {400, 408}


# Paths that lead elsewhere.


@pytest.mark.parametrize(
    "name",
    ["..", "../x", "..%2fx", "%2e%2e/x", "..%5cx", "%2fetc", "a%00b", "a/../../b"],
)
def test_a_name_that_is_a_path_is_unknown(platform: Platform, name: str) -> None:
    address = urlsplit(platform.url)
    texts = set()
    for tail in ("", "/ready", "/config", "/versions/..%2f1", "/versions/1%2f..%2fx"):
        with socket.create_connection((address.hostname, address.port), 10) as raw:
            # A client of the standard kind would tidy the path up.
            raw.sendall(
                f"GET /v2/models/{name}{tail} HTTP/1.1\r\nhost: x\r\n"
                "connection: close\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        status = int(answer.split(b" ", 2)[1])
        assert status in {400, 404}, answer
        texts.add(answer.partition(b"\r\n\r\n")[2])
    assert not any(b"/root" in text or b"Traceback" in text for text in texts)


@pytest.mark.parametrize("location", ["../../../etc/hosts", "/etc/hosts"])
def test_weights_outside_the_version_folder_are_refused(
    platform: Platform, location: str
) -> None:
    name = f"outside{len(location)}"
    put_version(platform.models, name, "1", zoo.external_data(location))

    eventually(lambda: "external" in platform.state_of(name, "1"))

    answer = platform.post(f"{name}/infer", {"inputs": []})
    assert answer.status_code in {404, 503}
    assert "hosts" not in answer.json()["error"]


def test_weights_beside_the_model_are_served(platform: Platform) -> None:
    staged = platform.models / ".staged"
    folder = put_version(staged, "beside", "1", zoo.external_data("w.bin"))
    (folder / "w.bin").write_bytes(np.ones(8, np.float32).tobytes())
    folder.parent.rename(platform.models / "beside")
    staged.rmdir()

    platform.await_ready("beside", "1")

    got = platform.infer("beside", {"x": np.zeros((1, 8), np.float32)})
    assert got["y"].tolist() == [[1.0] * 8]


# Reload under traffic.


class Traffic:
    """Fifty unversioned requests a second to ``reloaded``, until it is stopped."""

    def __init__(self, url: str) -> None:
        self._path = f"{url}/v2/models/reloaded/infer"
        self._stop = threading.Event()
        self.answers: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        tensor = {"datatype": "INT32", "shape": [1, 16], "data": [1] * 16}
        inputs = [{"name": name, **tensor} for name in ("INPUT0", "INPUT1")]
        with httpx.Client(timeout=30) as client:
            while not self._stop.wait(0.02):
                answer = client.post(self._path, json={"inputs": inputs})
                self.answers.append((answer.status_code, answer.text))


def offset_of(version: str) -> int:
    return 100 * int(version)


def test_versions_come_and_go_under_traffic(platform: Platform) -> None:
    def publish(version: str) -> None:
        model = graphs.addsub(offset_of(version))
        put_version(platform.models, "reloaded", version, model)

    def retire(version: str) -> None:
        remove(platform.models / "reloaded" / version)
        eventually(lambda: platform.state_of("reloaded", version) != "READY")

    publish("1")
    platform.await_ready("reloaded", "1")
    traffic = Traffic(platform.url)
    try:
        for version in ("2", "3"):
            publish(version)
            platform.await_ready("reloaded", version)
            retire(str(int(version) - 1))
        # Back to an older one, then one that cannot be loaded.
        publish("2")
        platform.await_ready("reloaded", "2")
        retire("3")
        put_version(platform.models, "reloaded", "4", zoo.refused_corrupt())
        eventually(lambda: platform.state_of("reloaded", "4") not in {"", "loading"})
        time.sleep(0.5)
    finally:
        traffic.stop()

    assert {status for status, _ in traffic.answers} == {200}, traffic.answers
    seen: list[str] = []
    for _, text in traffic.answers:
        body = json.loads(text)
        version = body["model_version"]
        assert body["outputs"][0]["data"] == [2 + offset_of(version)] * 16
        if not seen or seen[-1] != version:
            seen.append(version)
    assert seen == ["1", "2", "3", "2"]
    gone = platform.post("reloaded/versions/1/infer", {"inputs": []})
    assert gone.status_code in {404, 503}


def remove(folder: Path) -> None:
    """As an operator removes a version: out of sight at once, then its files."""
    doomed = folder.rename(folder.with_name(f".{folder.name}.gone"))
    for file in doomed.iterdir():
        file.unlink()
    doomed.rmdir()
