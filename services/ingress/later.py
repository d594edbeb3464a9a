"""``/v2/requests/{id}``: the answer to a request that was accepted before, or its end.

The id says where the request lies in the log, and the request says how its answer is
wanted, so that any ingress can tell, whatever has become of the one that took it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.domain import Reason, Source
from headrace.errors import BusError, RequestError, UndecodableRecord
from headrace.wire import (
    Answer,
    Locator,
    Record,
    Replies,
    Topics,
    decode_plain_reply,
    decode_plain_request,
    is_keyed,
    job_of,
)
from headrace.wire import headers as names
from services.ingress.answers import (
    accepted_answer,
    identity_fields,
    refusal_answer,
    result_answer,
)
from services.ingress.archive import Gone
from services.ingress.asgi import header_list
from services.ingress.claims import Claims
from services.ingress.head import Head, read_head
from services.ingress.keeping import (
    Keeper,
    fingerprint_of,
    key_reused,
    unpacked,
)
from services.ingress.parsing import WantedOutput
from services.ingress.refusal import Refusal, refuse
from services.ingress.shelf import SLACK_US, When

__all__ = ["Later", "read_wait_s"]

RETRY_AFTER_S = 1
CANCELLED_WITHIN_S = 1.0
"""Longest that the cancel of a request with a key waits for its end. One that runs may
take longer, and its answer stays the key's."""
_DIGITS_MAX = 9

_wanted = msgspec.json.Decoder(tuple[tuple[str, bool], ...])


class _Asked(msgspec.Struct, frozen=True):
    """A request of earlier, as its record tells it."""

    locator: Locator
    place: Source
    tenant: str
    log_us: int
    body_sha256: str
    client_id: str
    x_request_id: bytes
    wanted: tuple[tuple[str, bool], ...]

    @property
    def outputs(self) -> tuple[WantedOutput, ...]:
        return tuple(WantedOutput(*each) for each in self.wanted)


class Later:
    """Its pages."""

    def __init__(
        self,
        keeper: Keeper,
        topics: Topics,
        claims: Claims,
        *,
        wait_s_max: int,
        memory_us: int,
    ) -> None:
        self._keeper = keeper
        self._claims = claims
        self._shelf = keeper.shelf
        self._topics = topics
        self._wait_s_max = wait_s_max
        self._memory_us = memory_us

    async def get(self, request: Request) -> Response:
        head = read_head(request.scope["headers"])
        asked = await self._asked(request, head)
        if isinstance(asked, Refusal):
            return _refused(asked, "", b"")
        wait_s = self._wait_s(request)
        if isinstance(wait_s, Refusal):
            return _refused(wait_s, asked.locator.id, asked.x_request_id)
        try:
            record = await self._find(asked, wait_s)
        except BusError as error:
            record = _unavailable(error)
        if record is None:
            return _pending(asked.locator)
        if isinstance(record, Refusal):
            return _refused(record, asked.locator.id, asked.x_request_id)
        try:
            kept = decode_plain_reply(record)
        except UndecodableRecord as error:
            refusal = refuse(Reason.CRASH, str(error))
            return _refused(refusal, asked.locator.id, asked.x_request_id)
        run, answer = unpacked(kept)
        answer = await self._claims.completed(answer, asked.outputs)
        return _answer(asked, head, run, answer)

    async def delete(self, request: Request) -> Response:
        head = read_head(request.scope["headers"])
        asked = await self._asked(request, head)
        if isinstance(asked, Refusal):
            return _refused(asked, "", b"")
        locator = asked.locator
        try:
            record = await self._find(asked, 0)
            if record is None:
                await self._keeper.cancel(locator, asked.tenant, asked.body_sha256)
                if is_keyed(locator.id):
                    # Whoever asks under the key from here on is not to join what ends.
                    await self._find(asked, CANCELLED_WITHIN_S)
                return Response(status_code=HTTPStatus.NO_CONTENT)
            if isinstance(record, Refusal):
                return _refused(record, locator.id, asked.x_request_id)
            reply = decode_plain_reply(record)
        except BusError as error:
            return _refused(_unavailable(error), locator.id, asked.x_request_id)
        if reply.reason is Reason.CANCELLED:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        text = "the request has ended: GET gives its answer"
        refusal = refuse(Reason.INVALID, text, status=HTTPStatus.CONFLICT)
        return _refused(refusal, locator.id, asked.x_request_id)

    async def _find(self, asked: _Asked, wait_s: float) -> Record | Refusal | None:
        """Its answer; a refusal where its key stands for another request."""
        await self._shelf.opened(asked.tenant, job_of(asked.locator.id))
        back_us = self._memory_us + SLACK_US if asked.body_sha256 else 0
        when = When(asked.log_us - back_us, asked.log_us)
        key = self._keeper.key_of(asked.tenant, asked.locator.id)
        record = await self._shelf.find(key, when, wait_s)
        if record is None or not asked.body_sha256:
            return record
        answered = names.parse_source(dict(record.headers).get(names.SOURCE))
        if answered == asked.place:
            return record
        # One of the same body may have been asked before, or was written twice.
        other = await self._shelf.archive.look(answered)
        if isinstance(other, Record):
            if fingerprint_of(other) == asked.body_sha256.encode():
                return record
        elif other is Gone.FORGOTTEN:
            return _forgotten()
        return await self._shelf.answer_of(asked.place, key, when) or key_reused()

    async def _asked(self, request: Request, head: Head) -> _Asked | Refusal:
        if head.fault is not None:
            return head.fault
        locator = Locator.parse(request.path_params["id"])
        if locator is None:
            return _unknown()
        place = Source(
            self._topics.requests(locator.model), locator.partition, locator.offset
        )
        try:
            record = await self._shelf.archive.look(place)
        except BusError as error:
            return _unavailable(error)
        if record is Gone.FORGOTTEN:
            return _forgotten()
        if isinstance(record, Gone):
            return _unknown()
        return _read(locator, place, head.tenant, record) or _unknown()

    def _wait_s(self, request: Request) -> float | Refusal:
        given = request.query_params.get("wait", "0")
        return read_wait_s(given, self._wait_s_max)


def read_wait_s(given: str, most: int) -> float | Refusal:
    """``?wait=``, cut to ``most``."""
    if not given.isdecimal():
        text = f"wait must be a whole number of seconds, got {given[:40]!r}"
        return refuse(Reason.INVALID, text)
    # Thousands of digits would be an error of Python.
    return most if len(given) > _DIGITS_MAX else min(int(given), most)


class _Past(NamedTuple):
    """What an answer is made of, for a request that nobody carries any more."""

    request_id: str
    client_id: str
    wanted: tuple[WantedOutput, ...]
    head: Head


def _read(
    locator: Locator, place: Source, tenant: str, record: Record
) -> _Asked | None:
    """None: it is not the request that the id names, or not this tenant's."""
    headers = dict(record.headers)
    try:
        names.check_schema(headers)
        named = names.text(headers, names.CE_ID), names.text(headers, names.TENANT)
        if named != (locator.id, tenant) or record.value is None:
            return None
        return _Asked(
            locator=locator,
            place=place,
            tenant=tenant,
            log_us=record.timestamp_us,
            body_sha256=names.text(headers, names.BODY_SHA256),
            client_id=decode_plain_request(record.value).client_id,
            x_request_id=names.text(headers, names.X_REQUEST_ID).encode("latin-1"),
            wanted=_wanted.decode(headers.get(names.OUTPUTS) or b""),
        )
    except (RequestError, UndecodableRecord, ValueError):
        return None


def _answer(asked: _Asked, head: Head, run: Replies, reply: Answer) -> Response:
    """The very answer that the request would have got while its client waited."""
    request_id, x_request_id = asked.locator.id, asked.x_request_id
    if reply.reason is not None:
        refusal = refuse(reply.reason, reply.text, admitted=True)
        return _refused(refusal, request_id, x_request_id, asked.client_id)
    past = _Past(
        request_id,
        asked.client_id,
        asked.outputs,
        Head(accept_encoding=head.accept_encoding, x_request_id=x_request_id),
    )
    try:
        fields, body = result_answer(past, run.model, run.version, reply.outputs)
    except RequestError as error:
        refusal = refuse(Reason.MODEL_ERROR, str(error))
        return _refused(refusal, request_id, x_request_id)
    response = Response(b"".join(body))
    response.raw_headers += header_list(fields)
    return response


def _pending(locator: Locator) -> Response:
    fields, body = accepted_answer(locator)
    fields += b"retry-after: %d\r\n" % RETRY_AFTER_S
    response = Response(body, HTTPStatus.ACCEPTED)
    response.raw_headers += header_list(fields + identity_fields(locator.id, b""))
    return response


def _refused(
    refusal: Refusal, request_id: str, x_request_id: bytes, client_id: str = ""
) -> Response:
    fields, body = refusal_answer(refusal, client_id)
    if request_id:
        fields += identity_fields(request_id, x_request_id)
    response = Response(body, refusal.status)
    response.raw_headers += header_list(fields)
    return response


def _unknown() -> Refusal:
    text = "no request of this tenant (headrace-tenant) has this id"
    return refuse(Reason.INVALID, text, status=HTTPStatus.NOT_FOUND)


def _forgotten() -> Refusal:
    text = "the log has forgotten this request (history_hours)"
    return refuse(Reason.INVALID, text, status=HTTPStatus.GONE)


def _unavailable(error: BusError) -> Refusal:
    return refuse(Reason.LOG_UNAVAILABLE, f"the log does not answer: {error}")
