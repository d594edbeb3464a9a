"""The JSON part of an inference request, as the protocol structures it.

Whatever is not of that structure raises :class:`headrace.errors.RequestError` with the
place; what its parts mean to a model is not looked at here.
"""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

import msgspec

from headrace.errors import RequestError
from services.ingress.bounds import BodyBounds

__all__ = [
    "Body",
    "BodyRefused",
    "Input",
    "InputParameters",
    "Output",
    "OutputParameters",
    "RequestParameters",
    "overrides",
    "read_id",
    "read_json",
]

Bytes = bytes | bytearray | memoryview

ID_CHARACTERS_MAX = 1024
"""A longer ``id`` is refused: it travels beside the tensors, in the room that the log
leaves for headers."""


class BodyRefused(RequestError):
    """A body that is at fault, with the ``id`` that it gave for its answer."""

    def __init__(self, error: RequestError, client_id: object) -> None:
        super().__init__(str(error), reason=error.reason, logged=error.logged)
        try:
            self.client_id = read_id(client_id if type(client_id) is str else None)
        except RequestError:
            self.client_id = ""


class InputParameters(msgspec.Struct):
    binary_data_size: int | None = None
    shared_memory_region: Any = None


class Input(msgspec.Struct):
    name: str
    shape: Any
    datatype: str
    parameters: InputParameters | None = None
    data: Any = msgspec.UNSET


class OutputParameters(msgspec.Struct):
    binary_data: bool | None = None
    classification: Any = None
    shared_memory_region: Any = None


class Output(msgspec.Struct):
    name: str
    parameters: OutputParameters | None = None


class RequestParameters(msgspec.Struct):
    priority: int | str | None = None
    timeout: int | None = None
    binary_data_output: bool = False


class _IdAlone(msgspec.Struct):
    id: Any = None


class Body(msgspec.Struct):
    inputs: list[Input]
    id: str | None = None
    parameters: RequestParameters | None = None
    outputs: list[Output] | None = None


_AT = r"(?: - at `\$\.?(.*)`)?"
_OTHER_TYPE = re.compile(rf"Expected `([^`]+)`, got `([^`]+)`{_AT}")
_ELSE = re.compile(r"(.+) - at `\$\.?(.*)`")
_MISSING = re.compile(rf"Object missing required field `([^`]+)`{_AT}")
_INTO_TENSORS = re.compile(r"(inputs|outputs)\[(\d+)\]\.?")
_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number with a fraction",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
"""The parser's words for what JSON has."""

_decode = msgspec.json.Decoder(Body).decode
_decode_id = msgspec.json.Decoder(_IdAlone).decode


def read_json(text: Bytes, bounds: BodyBounds, *, whole: bool = False) -> Body:
    """``whole``: the body has no other part."""
    bounds.check_json(text)
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        refused = RequestError(_placed(error, text))
        try:
            client_id = _decode_id(text).id
        except (msgspec.DecodeError, RecursionError):
            raise refused from error
        raise BodyRefused(refused, client_id) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raw = bytes(text)
        if not raw:
            raise RequestError("the body is not valid JSON: it is empty") from error
        # The three tokens that JSON lacks, read and written bare as Triton does.
        if b"NaN" in raw or b"Infinity" in raw:
            bounds.check_constants(raw)
            return _read_json_with_constants(raw)
        hint = ""
        if whole and b"binary_data_size" in raw:
            hint = "; is the header Inference-Header-Content-Length missing?"
        raise RequestError(f"the body is not valid JSON: {error}{hint}") from error


def _read_json_with_constants(text: bytes) -> Body:
    try:
        document = json.loads(text.decode(), parse_float=_finite)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    except ValueError as error:  # what Python's int refuses to read
        raise RequestError("the body holds an integer of too many digits") from error
    try:
        return msgspec.convert(document, Body)
    except msgspec.ValidationError as error:
        refused = RequestError(_placed(error, text))
        given = document.get("id") if isinstance(document, dict) else None
        raise BodyRefused(refused, given) from error


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise RequestError(
            f"the number {digits[:40]} is out of range",
            logged="a number is out of range",
        )
    return number


def _placed(error: msgspec.ValidationError, text: Bytes) -> str:
    """The parser's finding in the words of JSON, with the tensor's name where it is
    about one."""
    told = str(error)
    if found := _OTHER_TYPE.fullmatch(told):
        wanted = [each for each in found[1].split(" | ") if each != "null"]
        what = f"must be {' or '.join(map(_type, wanted))}, got {_type(found[2])}"
        path = found[3] or ""
    elif found := _MISSING.fullmatch(told):
        what = f"{found[1]} is missing"
        path = found[2] or ""
    elif found := _ELSE.fullmatch(told):
        what = f"{found[1][0].lower()}{found[1][1:]}"
        path = found[2]
    else:
        return f"the request: {told}"
    tensor, path = _tensor(path, text)
    place = ": ".join(filter(None, (tensor, path))) or "the request"
    return f"{place}{' ' if what.startswith('must') else ': '}{what}"


def _tensor(path: str, text: Bytes) -> tuple[str, str]:
    """The named tensor into which ``path`` leads, and the way from there on."""
    step = _INTO_TENSORS.match(path)
    if step is None:
        return "", path
    try:
        name = json.loads(bytes(text))[step[1]][int(step[2])]["name"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "", path
    if not isinstance(name, str):
        return "", path
    return f"{step[1][:-1]} {name[:100]!r}", path[step.end() :]


def _type(word: str) -> str:
    return _TYPES.get(word, word)


def read_id(given: str | None) -> str:
    if given is None:
        return ""
    if len(given) > ID_CHARACTERS_MAX:
        raise RequestError(
            f"id is limited to {ID_CHARACTERS_MAX} characters, got {len(given)}"
        )
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"id is not valid Unicode (at its character {error.start}: {error.reason})"
        ) from error
    return given


def overrides(body: bytes | bytearray) -> bool:
    """Whether the body may say otherwise than the head; looked for without parsing,
    since under overload most requests end here."""
    return b'"timeout"' in body or b'"priority"' in body
