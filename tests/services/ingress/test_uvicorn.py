"""The names of uvicorn's protocol that ours reads, sets and overrides: an upgrade of
uvicorn that renames one must fail here and not in production."""

import ast
import inspect
from pathlib import Path
from textwrap import dedent

import pytest
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import Server, ServerState

from services.ingress import protocol
from services.ingress.hot import HotExchange
from services.ingress.protocol import InferenceProtocol


def attributes_of(owner: str, source: str) -> set[str]:
    """``owner.<name>`` in a source text."""
    return {
        node.attr
        for node in ast.walk(ast.parse(dedent(source)))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == owner
    }


UVICORN = inspect.getsource(HttpToolsProtocol)
OWN = {
    name
    for name in (
        *vars(InferenceProtocol),
        "_ahead",
        "_asked_whether_there",
        "handler",
        "heads_left",
        "is_deaf",
        "known",
        "target",
        "head_since_us",
        "quiet_since_us",
        "unread_since_us",
    )
    if name not in vars(HttpToolsProtocol)
} | {
    "_in_head",
    "_in_message",
    "_message_bytes",
    "_parting",
}


def test_every_inherited_name_that_we_use_exists() -> None:
    ours = inspect.getsource(InferenceProtocol)
    used = attributes_of("self", ours) | attributes_of("connection", ours)
    theirs = attributes_of("self", UVICORN) | set(vars(HttpToolsProtocol))
    assert used - OWN - theirs == set()


def test_every_overridden_method_is_one_that_uvicorn_calls() -> None:
    overridden = {
        name
        for name in vars(InferenceProtocol)
        if name in vars(HttpToolsProtocol) and not name.startswith("__")
    }
    assert overridden == {
        "connection_lost",
        "connection_made",
        "data_received",
        "eof_received",
        "on_body",
        "on_header",
        "on_headers_complete",
        "on_message_begin",
        "on_message_complete",
        "on_response_complete",
        "pause_writing",
        "resume_writing",
        "shutdown",
    }


def test_our_cycle_has_what_uvicorns_protocol_asks_of_one() -> None:
    inherited = {
        name: inspect.getsource(getattr(HttpToolsProtocol, name))
        for name in ("connection_lost", "shutdown", "on_headers_complete")
    }
    asked = set().union(
        *(attributes_of("self.cycle", source) for source in inherited.values()),
        attributes_of("existing_cycle", inherited["on_headers_complete"]),
    )
    assert asked == {"disconnected", "keep_alive", "message_event", "response_complete"}
    assert asked <= {name for name in dir(HotExchange) if not name.startswith("__")}


@pytest.mark.parametrize("name", ["keep_alive", "more_body", "response_complete"])
def test_uvicorns_cycle_has_what_we_ask_of_it(name: str) -> None:
    assert name in attributes_of("self", inspect.getsource(RequestResponseCycle))


def test_our_on_response_complete_does_all_that_uvicorns_does() -> None:
    theirs = attributes_of(
        "self", inspect.getsource(HttpToolsProtocol.on_response_complete)
    )
    replaced = {
        "_unset_keepalive_if_required",
        "loop",
        "timeout_keep_alive",
        "timeout_keep_alive_handler",
        "timeout_keep_alive_task",
    }
    ours = attributes_of(
        "self", inspect.getsource(InferenceProtocol.on_response_complete)
    )
    assert theirs - replaced <= ours


def test_the_other_names() -> None:
    assert httptools_impl.STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert {"total_requests", "connections"} <= set(vars(ServerState()))
    assert {"pause_reading", "resume_reading"} <= set(vars(FlowControl))
    assert {"read_paused", "write_paused"} <= attributes_of(
        "self", inspect.getsource(FlowControl)
    )
    assert callable(Server.capture_signals)
    source = Path(inspect.getfile(protocol)).read_text()
    assert "from uvicorn.protocols.http.httptools_impl import" in source
