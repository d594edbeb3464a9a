"""``headrace infer``: one request, written by a person."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import httpx
import msgspec
import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.domain import Datatype, Reason
from headrace.errors import SetupError
from services.ctl.errors import UsageError
from services.ctl.where import ingress_url

__all__ = ["infer"]

_PATIENCE_S = 30.0


class _Spec(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]


class _Indexed(msgspec.Struct):
    name: str


class _Metadata(msgspec.Struct):
    inputs: list[_Spec]


class _Output(_Spec):
    data: list[Any]

    def __post_init__(self) -> None:
        if len(self.data) != math.prod(self.shape):
            raise ValueError(f"{self.name}: {len(self.data)} elements of {self.shape}")


class _Answer(msgspec.Struct):
    model_name: str
    model_version: str
    outputs: list[_Output]


def infer(
    model: str,
    /,
    *,
    inputs: Annotated[
        Sequence[str],
        Parameter(
            name=("--input", "-i"),
            negative=(),
            allow_leading_hyphen=True,
            show_default=False,
        ),
    ] = (),
    version: str | None = None,
    url: str | None = None,
    data: Path | None = None,
    output: Literal["table", "json"] = "table",
) -> int:
    """Send one request to a model and print the answer.

    Parameters
    ----------
    model
        The model's name.
    inputs
        name=JSON for one input (repeat it for several), or a whole request as JSON, a
        file with it, or - for stdin.
    version
        The version to run; without it the highest.
    url
        Address of an ingress [default: HEADRACE_URL, or the one that runs here].
    data
        The folder given to `up`.
    output
        table, or the answer's JSON.
    """
    path = f"/v2/models/{_quoted(model)}"
    if version:
        path += f"/versions/{_quoted(version)}"
    address = ingress_url(url, data)
    with httpx.Client(base_url=address, timeout=_PATIENCE_S, trust_env=False) as client:
        try:
            body = _request(client, path, inputs)
            began = time.monotonic()
            answer = client.post(f"{path}/infer", content=json.dumps(body))
            took_ms = 1000 * (time.monotonic() - began)
            if not answer.is_success:
                raise _refused(client, answer)
            outputs = msgspec.json.decode(answer.content, type=_Answer)
        except httpx.TransportError as error:
            raise SetupError(f"{address} does not answer: {error}.") from error
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise SetupError(
                f"{address} answers, but not as an ingress does: {error}."
            ) from error
    if output == "json":
        print(answer.text)
    else:
        _show(outputs, took_ms)
    return 0


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _request(client: httpx.Client, path: str, inputs: Sequence[str]) -> dict[str, Any]:
    named: dict[str, str] = {}
    for text in filter(_is_named, inputs):
        name, _, value = text.partition("=")
        if name in named:
            raise UsageError(f"input {name!r} is given more than once.")
        named[name] = value
    if inputs and len(named) == len(inputs):
        return _from_values(client, path, named)
    if len(inputs) == 1:
        return _whole(inputs[0])
    wanted = ", ".join(
        f"{name} ({spec.datatype} {spec.shape})"
        for name, spec in _signature(client, path).items()
    )
    raise UsageError(
        f"give every input as --input NAME=JSON, or a whole request: it takes {wanted}."
    )


def _is_named(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(equals) and not name.lstrip().startswith("{")


def _whole(text: str) -> dict[str, Any]:
    content: str | bytes = text
    source = "--input"
    if text == "-":
        source, content = "stdin", sys.stdin.buffer.read()
    elif not text.lstrip().startswith("{"):
        source = text
        try:
            content = Path(text).read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{text} cannot be read: {reason}.") from error
    try:
        request = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} holds no JSON: {error}.") from error
    if not isinstance(request, dict) or not isinstance(request.get("inputs"), list):
        raise UsageError(f'{source} holds no request: a list "inputs" is missing.')
    return request


def _from_values(
    client: httpx.Client, path: str, named: dict[str, str]
) -> dict[str, Any]:
    signature = _signature(client, path)
    tensors = []
    for name, text in named.items():
        spec = signature.get(name)
        if spec is None:
            raise UsageError(
                f"there is no input {name!r}: it takes {', '.join(signature)}."
            )
        tensors.append(_tensor(spec, text))
    return {"inputs": tensors}


def _signature(client: httpx.Client, path: str) -> dict[str, _Spec]:
    answer = client.get(path)
    if not answer.is_success:
        raise _refused(client, answer)
    metadata = msgspec.json.decode(answer.content, type=_Metadata)
    return {spec.name: spec for spec in metadata.inputs}


def _tensor(spec: _Spec, text: str) -> dict[str, Any]:
    """A value as people write it: a bare word is a string, and leading dimensions of
    one may be left out. Whether it fits, the platform says."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if spec.datatype != Datatype.BYTES:
            raise UsageError(f"{spec.name} holds no JSON: {error}.") from error
        value = text
    try:
        values = np.array(value)
    except ValueError as error:
        raise UsageError(f"{spec.name}: its rows differ in length.") from error
    missing = max(0, len(spec.shape) - values.ndim)
    values = values.reshape((1,) * missing + values.shape)
    return {
        "name": spec.name,
        "datatype": spec.datatype,
        "shape": list(values.shape),
        "data": values.ravel().tolist(),
    }


def _refused(client: httpx.Client, answer: httpx.Response) -> SetupError:
    text = f"{answer.status_code}: {_error(answer)}"
    if answer.headers.get("headrace-reason") == Reason.MODEL_UNKNOWN:
        index = client.post("/v2/repository/index")
        if index.is_success:
            served = msgspec.json.decode(index.content, type=list[_Indexed])
            names = ", ".join(sorted({each.name for each in served})) or "none"
            text += f"; the models there are: {names}"
    return SetupError(text)


def _error(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]


def _show(answer: _Answer, took_ms: float) -> None:
    console = Console()
    table = Table(title=escape(f"{answer.model_name} version {answer.model_version}"))
    for heading in ("output", "datatype", "shape", "data"):
        table.add_column(heading)
    for tensor in answer.outputs:
        values = np.array(tensor.data).reshape(tensor.shape)
        text = np.array2string(values, precision=4, threshold=20, suppress_small=True)
        cells = (tensor.name, tensor.datatype, str(tensor.shape), text)
        table.add_row(*map(escape, cells))
    console.print(table)
    console.print(f"answered in {took_ms:.1f} ms")
