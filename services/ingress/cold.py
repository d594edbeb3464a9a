"""The paths that are asked seldom: health, metadata, statistics, and what we refuse.

Routes match the path as it stands on the wire, nothing unquoted: a quoted slash or dot
is part of a name that no model has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from importlib.metadata import version

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.domain import Datatype, ModelState, Reason, ServedVersion, TensorSpec
from headrace.errors import RequestError
from headrace.lifecycle import Health
from headrace.wire import ServiceState
from services.ingress.answers import (
    identity_fields,
    refusal_answer,
    refusal_fields,
)
from services.ingress.asgi import InferenceApp, header_list
from services.ingress.batches.objects import ApiError, envelope
from services.ingress.fleet import Fleet
from services.ingress.handler import Handler
from services.ingress.head import read_x_request_id
from services.ingress.later import Later
from services.ingress.refusal import OWN_FAULT, Refusal, refuse
from services.ingress.statistics import Statistics
from services.ingress.store_watch import AWAITED

__all__ = ["Edge", "cold_app"]

EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")

_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"

_UNSUPPORTED = (
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/v2/trace/setting",
    _MODEL + "/trace/setting",
    _VERSION + "/trace/setting",
    "/v2/logging",
    "/v2/systemsharedmemory/{rest:path}",
    "/v2/cudasharedmemory/{rest:path}",
    "/v2/tpusharedmemory/{rest:path}",
    _MODEL + "/generate",
    _MODEL + "/generate_stream",
    _VERSION + "/generate",
    _VERSION + "/generate_stream",
)


def cold_app(  # noqa: PLR0913 - what the pages show
    handler: Handler,
    fleet: Fleet,
    statistics: Statistics,
    probe: Callable[[str], tuple[int, str, bytes]],
    health: Health,
    later: Later,
    *,
    v1: Sequence[Route] = (),
) -> Edge:
    """The ASGI application behind uvicorn. ``probe`` answers ``/livez``, ``/readyz``
    and ``/metrics`` with status, content type and body. ``v1``: what is below
    ``/v1``, whose errors have a form of their own."""
    pages = _Pages(fleet, statistics, health, probe)

    async def failed(request: Request, error: Exception) -> Response:
        request_id, x_request_id = request.scope[_IDENTITY]
        match error:
            case ApiError():
                reason = Reason(error.reason)
                refusal = refuse(reason, str(error), status=error.status)
            case RequestError():
                refusal = refuse(Reason(error.reason), str(error))
            case HTTPException():
                refusal = _not_served(request, error)
            case _:
                handler.outcomes.crashed(request_id, error)
                refusal = refuse(Reason.CRASH, OWN_FAULT)
        handler.outcomes.unread(request_id, x_request_id, refusal)
        fields, body = refusal_answer(refusal)
        if request.url.path.startswith("/v1/"):
            body = envelope(refusal, error)
        response = Response(body, refusal.status)
        response.raw_headers += header_list(fields)
        return response

    app = Starlette(
        routes=[*_routes(pages, InferenceApp(handler), later), *v1],
        exception_handlers=dict.fromkeys(
            (HTTPException, RequestError, Exception), failed
        ),
    )
    app.router.redirect_slashes = False
    return Edge(app, handler.new_request_id, failed)


def _routes(pages: _Pages, infer: InferenceApp, later: Later) -> list[Route]:
    return [
        Route("/v2/health/live", pages.live),
        Route("/v2/health/ready", pages.ready),
        Route("/v2", pages.server),
        Route("/v2/models/stats", pages.all_statistics),
        Route("/v2/repository/index", pages.index, methods=["POST"]),
        *(
            Route(base + tail, page)
            for base in (_MODEL, _VERSION)
            for tail, page in (
                ("", pages.metadata),
                ("/ready", pages.model_ready),
                ("/config", pages.config),
                ("/stats", pages.model_statistics),
            )
        ),
        Route("/v2/requests/{id}", later.get, methods=["GET"]),
        Route("/v2/requests/{id}", later.delete, methods=["DELETE"]),
        Route(_MODEL + "/infer", infer, methods=["POST"]),
        Route(_VERSION + "/infer", infer, methods=["POST"]),
        *(Route(path, _unsupported, methods=["GET", "POST"]) for path in _UNSUPPORTED),
        *(Route(path, pages.probed) for path in ("/livez", "/readyz", "/metrics")),
    ]


_IDENTITY = "headrace.identity"
"""Of a scope: our id of the request, and the client's."""


class Edge:
    """Lets the router see the path as the client sent it, and has every answer name
    its request."""

    def __init__(
        self,
        app: ASGIApp,
        new_id: Callable[[], str],
        failed: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self._app = app
        self._new_id = new_id
        self._failed = failed
        self._running: set[asyncio.Task[None]] = set()
        self._cut_off: Refusal | None = None

    def cut_off(self, refusal: Refusal) -> None:
        """The process ends: what runs ends too, and is answered so where its answer
        has not begun."""
        self._cut_off = refusal
        while self._running:
            self._running.pop().cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")
        identity = self._new_id(), read_x_request_id(scope["headers"])
        scope[_IDENTITY] = identity
        answer = _Answer(scope, receive, send, identity)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._app(scope, answer.receive, answer.send)
        except asyncio.CancelledError:
            if self._cut_off is None:
                raise
            task.uncancel()
            if not answer.is_begun:
                text, reason = self._cut_off.text, self._cut_off.reason
                error = RequestError(text, reason=reason)
                response = await self._failed(Request(scope), error)
                await response(scope, answer.receive, answer.send)
        except Exception:
            # Starlette has answered it, and raises it again for those who only log.
            if not answer.is_complete:
                raise
        finally:
            self._running.discard(task)


class _Answer:
    """What goes through the edge, either way, in one call."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, identity: tuple[str, bytes]
    ) -> None:
        self._receive = receive
        self._send = send
        self._identity = identity
        # A client that is answered before it was told to go on may leave its body out.
        self._owes_body = any(name == b"expect" for name, _ in scope["headers"])
        self.is_begun = False
        self.is_complete = False

    async def receive(self) -> Message:
        self._owes_body = False
        return await self._receive()

    async def send(self, message: Message) -> None:
        self.is_begun = True
        self.is_complete = message["type"] == "http.response.body" and not message.get(
            "more_body", False
        )
        if message["type"] == "http.response.start":
            headers = message["headers"]
            names = {name for name, _ in headers}
            if b"headrace-request-id" not in names:
                headers += header_list(identity_fields(*self._identity))
            if self._owes_body and b"connection" not in names:
                headers.append((b"connection", b"close"))
        await self._send(message)


class _Pages:
    """The answers that are made from what this process knows."""

    def __init__(
        self,
        fleet: Fleet,
        statistics: Statistics,
        health: Health,
        probe: Callable[[str], tuple[int, str, bytes]],
    ) -> None:
        self._fleet = fleet
        self._statistics = statistics
        self._health = health
        self._probe = probe

    async def probed(self, request: Request) -> Response:
        path = request.url.path
        # Metrics of many models take longer to write than a request may wait.
        status, content_type, body = (
            await asyncio.to_thread(self._probe, path)
            if path == "/metrics"
            else self._probe(path)
        )
        response = Response(body, status, media_type=content_type)
        if status != HTTPStatus.OK:
            response.raw_headers += header_list(refusal_fields(self._unwell(path)))
        return response

    async def live(self, _request: Request) -> Response:
        why_not = self._health.why_not_alive()
        refusal = self._unwell("/livez") if why_not else None
        return _json({"live": why_not is None}, refusal)

    async def ready(self, _request: Request) -> Response:
        why_not = self._health.why_not_ready()
        if why_not is None:
            return _json({"ready": True, "live": True})
        content = {"ready": False, "live": True, "error": why_not}
        return _json(content, self._unwell("/readyz"))

    def _unwell(self, path: str) -> Refusal:
        """The head of what a probe answers that fails."""
        if path == "/livez":
            reason = Reason.OVERLOADED
        elif self._health.state is ServiceState.DRAINING:
            reason = Reason.DRAINING
        elif self._health.awaits(AWAITED):
            reason = Reason.STORE_UNAVAILABLE
        elif self._fleet.starting and not self._fleet.log_awaited:
            reason = Reason.MODEL_LOADING
        else:
            reason = Reason.LOG_UNAVAILABLE
        return refuse(reason, "")

    async def server(self, _request: Request) -> Response:
        return _json(
            {
                "name": "headrace",
                "version": version("headrace"),
                "extensions": EXTENSIONS,
            }
        )

    async def metadata(self, request: Request) -> Response:
        served = self._asked(request)
        return _json(
            {
                "name": served.model,
                "versions": self._fleet.ready_versions(served.model),
                "platform": served.platform,
                "inputs": [_spec(spec) for spec in served.signature.inputs],
                "outputs": [_spec(spec) for spec in served.signature.outputs],
            }
        )

    async def model_ready(self, request: Request) -> Response:
        """Not an error when the model is not ready: only the status says so."""
        model = request.path_params["model"]
        try:
            why_not = self._fleet.why_not_reached(self._asked(request))
            reason = Reason.NO_CAPACITY
        except RequestError as error:
            why_not, reason = str(error), Reason(error.reason)
        if why_not is not None:
            content = {"name": model, "ready": False, "error": why_not}
            return _json(content, refuse(reason, why_not))
        return _json({"name": model, "ready": True})

    async def config(self, request: Request) -> Response:
        return _json(_config(self._asked(request)))

    async def model_statistics(self, request: Request) -> Response:
        served = self._asked(request)
        if "version" in request.path_params:
            versions = [served.version]
        else:
            versions = self._fleet.ready_versions(served.model)
        return _json({"model_stats": [self._stats(served.model, v) for v in versions]})

    async def all_statistics(self, _request: Request) -> Response:
        return _json(
            {
                "model_stats": [
                    self._stats(info.model, info.version)
                    for info in self._fleet.versions()
                    if info.state is ModelState.READY
                ]
            }
        )

    async def index(self, _request: Request) -> Response:
        return _json(
            [
                {
                    "name": info.model,
                    "version": info.version,
                    "state": "READY" if why_not is None else "UNAVAILABLE",
                    "reason": why_not or "",
                }
                for info in self._fleet.versions()
                for why_not in [self._fleet.why_not_ready(info)]
            ]
        )

    def _asked(self, request: Request) -> ServedVersion:
        """The version that the path names; raises :class:`RequestError`."""
        version = request.path_params.get("version", "")
        return self._fleet.resolve(request.path_params["model"], version).served

    def _stats(self, model: str, version: str) -> dict[str, object]:
        return self._statistics.of(model, version).as_json(model, version)


_TRITON_PLATFORMS = {"onnxruntime": "onnxruntime_onnx"}
"""Its word for what the protocol calls otherwise, by backend."""


def _config(served: ServedVersion) -> dict[str, object]:
    """Triton's model configuration, as far as its clients read it."""
    return {
        "name": served.model,
        "platform": _TRITON_PLATFORMS.get(served.backend, served.platform),
        "backend": served.backend,
        "max_batch_size": served.max_batch if served.batch_axes else 0,
        "input": [_config_tensor(spec, served) for spec in served.signature.inputs],
        "output": [_config_tensor(spec, served) for spec in served.signature.outputs],
    }


def _config_tensor(spec: TensorSpec, served: ServedVersion) -> dict[str, object]:
    text = spec.datatype is Datatype.BYTES
    axis = served.batch_axes.get(spec.name)
    return {
        "name": spec.name,
        "data_type": "TYPE_STRING" if text else f"TYPE_{spec.datatype}",
        "dims": [dim for place, dim in enumerate(spec.shape) if place != axis],
    }


def _spec(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _json(content: object, refusal: Refusal | None = None) -> Response:
    """``refusal`` is the head of an answer that is no success, whatever its body."""
    status = HTTPStatus.OK if refusal is None else refusal.status
    body = msgspec.json.encode(content)
    response = Response(body, status, media_type="application/json")
    if refusal is not None:
        response.raw_headers += header_list(refusal_fields(refusal))
    return response


async def _unsupported(_request: Request) -> Response:
    raise HTTPException(
        HTTPStatus.NOT_IMPLEMENTED, "this server does not offer this extension"
    )


def _methods(request: Request) -> str:
    """Of all routes of its path: the router names those of the first alone."""
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] != Match.NONE:
            methods |= route.methods or set()
    return ", ".join(sorted(methods))


def _not_served(request: Request, error: HTTPException) -> Refusal:
    """In place of the router's words."""
    text, fields = error.detail, b""
    if error.status_code == HTTPStatus.NOT_FOUND:
        text = (
            "there is nothing at this path; a model's are /v2/models/MODEL and "
            "/v2/models/MODEL/versions/VERSION, and below them /infer, /ready, "
            "/config and /stats"
        )
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = _methods(request)
        text = f"this path takes {allowed}, not {request.method}"
        fields = b"allow: %b\r\n" % allowed.encode()
    return refuse(Reason.INVALID, text, status=error.status_code, fields=fields)
