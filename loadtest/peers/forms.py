"""How a row of 64 floats travels: the forms in which servers take it and answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from loadtest.stream import Prepared
from services.ctl.client import Answer, infer_request, tensors_of

__all__ = [
    "INPUT",
    "MODEL",
    "Form",
    "Kind",
    "Response",
    "Row",
    "plain_json",
    "raw",
    "rows",
    "v2",
]

INPUT = "x"
MODEL = "model"
Row = npt.NDArray[np.float32]
Kind = Literal["binary", "JSON"]

_WIDTH = 64
_VARIANTS = 64


class Response(NamedTuple):
    """Header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """``request`` makes the path's request of a row of shape (1, 64); ``values``
    finds the outputs in an answer; ``end`` is how the answer to an echo of the row
    ends."""

    kind: Kind
    request: Callable[[Row], bytes]
    values: Callable[[Response], Row]
    end: Callable[[Row], bytes]

    def prepared(self, row: Row, *, echoed: bool) -> Prepared:
        return Prepared(self.request(row), self.end(row) if echoed else b"")


def rows(seed: int = 0) -> list[Row]:
    """64 rows with different last numbers, all exact in FP32 and in seven decimals."""
    dice = np.random.default_rng(seed)
    drawn = dice.integers(0, _VARIANTS, (_VARIANTS, 1, _WIDTH))
    drawn[:, 0, -1] = dice.permutation(_VARIANTS)
    return list(((2 * drawn + 1) / (2 * _VARIANTS)).astype(np.float32))


def raw(path: str) -> Form:
    """256 bytes, little-endian, and as bare an answer."""
    return Form(
        "binary",
        lambda row: _post(path, row.tobytes(), {"content-type": _OCTETS}),
        lambda answer: np.frombuffer(answer.body, np.float32),
        lambda row: row.tobytes(),
    )


def plain_json(path: str, closing: str, *, batched: bool = False) -> Form:
    """``{"x": [...]}``, or a list of such lists if ``batched``; ``closing`` is what
    follows the last number of an answer."""

    def request(row: Row) -> bytes:
        value = row.tolist() if batched else row[0].tolist()
        return _post(path, _encoded({INPUT: value}), {"content-type": _JSON})

    def values(answer: Response) -> Row:
        found = json.loads(answer.body)
        if isinstance(found, dict):
            (found,) = found.values()
        return np.asarray(found, np.float32).ravel()

    return Form("JSON", request, values, lambda row: _last(row, closing))


def v2(kind: Kind, closing: str = "") -> Form:
    """The Open Inference Protocol; ``closing`` is what follows the last number of an
    answer."""
    path = f"/v2/models/{MODEL}/infer"
    if kind == "JSON":
        return Form(
            kind,
            lambda row: _post(path, _v2_json(row), {"content-type": _JSON}),
            _v2_values,
            lambda row: _last(row, closing),
        )

    def request(row: Row) -> bytes:
        body, headers = infer_request({INPUT: row})
        return _post(path, body, {"content-type": _OCTETS, **headers})

    def values(answer: Response) -> Row:
        outputs = tensors_of(Answer(200, answer.headers, answer.body))
        (found,) = outputs.values()
        return found.ravel()

    return Form(kind, request, values, lambda row: row.tobytes() + closing.encode())


_OCTETS = "application/octet-stream"
_JSON = "application/json"


def _post(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "host: 127.0.0.1",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _last(row: Row, closing: str) -> bytes:
    return f"{float(row[0, -1])}{closing}".encode() if closing else b""


def _v2_json(row: Row) -> bytes:
    tensor = {
        "name": INPUT,
        "shape": list(row.shape),
        "datatype": "FP32",
        "data": row.ravel().tolist(),
    }
    return _encoded({"inputs": [tensor]})


def _v2_values(answer: Response) -> Row:
    (output,) = json.loads(answer.body)["outputs"]
    return np.asarray(output["data"], np.float32).ravel()
