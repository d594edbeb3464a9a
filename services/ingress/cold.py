"""The paths that are asked seldom: health, metadata, statistics, and what we refuse.

Routes match the path as it stands on the wire, nothing unquoted: a quoted slash or dot
is part of a name that no model has.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.domain import Datatype, ModelState, Reason, ServedVersion, TensorSpec
from headrace.errors import RequestError
from headrace.lifecycle import Health
from services.ingress.answers import error_body
from services.ingress.asgi import InferenceApp
from services.ingress.fleet import Fleet
from services.ingress.handler import Handler
from services.ingress.refusal import refuse
from services.ingress.statistics import Statistics

__all__ = ["cold_app"]

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


def cold_app(
    handler: Handler,
    fleet: Fleet,
    statistics: Statistics,
    probe: Callable[[str], tuple[int, str, bytes]],
    health: Health,
) -> ASGIApp:
    """The ASGI application behind uvicorn. ``probe`` answers ``/livez``, ``/readyz``
    and ``/metrics`` with status, content type and body."""
    pages = _Pages(fleet, statistics, health)

    async def probed(request: Request) -> Response:
        status, content_type, body = probe(request.url.path)
        return Response(body, status, media_type=content_type)

    infer = InferenceApp(handler)
    routes = [
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
        Route(_MODEL + "/infer", infer, methods=["POST"]),
        Route(_VERSION + "/infer", infer, methods=["POST"]),
        *(Route(path, _unsupported, methods=["GET", "POST"]) for path in _UNSUPPORTED),
        *(Route(path, probed) for path in ("/livez", "/readyz", "/metrics")),
    ]

    async def crashed(_request: Request, error: Exception) -> Response:
        handler.outcomes.crashed(error)
        return _error(
            HTTPStatus.INTERNAL_SERVER_ERROR, "an error of this server, see its log"
        )

    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _http_error,
            RequestError: _refused,
            Exception: crashed,
        },
    )
    app.router.redirect_slashes = False
    return _RawPath(app)


class _RawPath:
    """Lets the router see the path as the client sent it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)


class _Pages:
    """The answers that are made from what this process knows."""

    def __init__(self, fleet: Fleet, statistics: Statistics, health: Health) -> None:
        self._fleet = fleet
        self._statistics = statistics
        self._health = health

    async def live(self, _request: Request) -> Response:
        why_not = self._health.why_not_alive()
        return _json({"live": why_not is None}, ok=why_not is None)

    async def ready(self, _request: Request) -> Response:
        is_ready = self._health.why_not_ready() is None
        return _json({"ready": is_ready, "live": True}, ok=is_ready)

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
            status = refuse(reason, "").status
            return _json({"name": model, "ready": False, "error": why_not}, status)
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


def _config(served: ServedVersion) -> dict[str, object]:
    """Triton's model configuration, as far as its clients read it."""
    return {
        "name": served.model,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
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


def _json(content: object, status: int = 0, *, ok: bool = True) -> Response:
    status = status or (HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE)
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(text), status, headers, "application/json")


async def _unsupported(_request: Request) -> Response:
    return _error(
        HTTPStatus.NOT_IMPLEMENTED, "this server does not offer this extension"
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    texts = {
        HTTPStatus.NOT_FOUND: "there is nothing at this path",
        HTTPStatus.METHOD_NOT_ALLOWED: f"this path does not take {request.method}",
    }
    text = texts.get(HTTPStatus(error.status_code), error.detail)
    return _error(error.status_code, text, dict(error.headers or {}))


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    refusal = refuse(Reason(error.reason), str(error))
    headers = {"headrace-reason": refusal.reason.value}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(refusal.retry_after_s)
    return _error(refusal.status, refusal.text, headers)
