"""Whether everything that ``up`` started can answer, models included."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from headrace.repository import scan_folder

__all__ = ["await_ready"]

_POLL_S = 0.1
_ANSWER_WITHIN_S = 2.0
_LOADING = "loading"


def await_ready(
    urls: Sequence[str], ingresses: Sequence[str], models: Path, stop: threading.Event
) -> bool:
    """Wait until every process is ready and every version folder is served or refused
    for every ingress; False: ``stop`` was set first."""
    # Not through the proxy that the environment may name: all of it is local.
    with httpx.Client(timeout=_ANSWER_WITHIN_S, trust_env=False) as client:
        while not stop.wait(_POLL_S):
            try:
                if all(_is_ready(client, url) for url in urls) and all(
                    _is_settled(client, url, models) for url in ingresses
                ):
                    return True
            except httpx.TransportError:
                continue
    return False


def _is_ready(client: httpx.Client, url: str) -> bool:
    return client.get(f"{url}/readyz").is_success


def _is_settled(client: httpx.Client, ingress: str, models: Path) -> bool:
    index = client.post(f"{ingress}/v2/repository/index")
    if not index.is_success:
        return False
    settled = {
        (entry["name"], entry["version"])
        for entry in index.json()
        if entry["state"] == "READY" or entry["reason"] not in {"", _LOADING}
    }
    wanted = {(key.model, key.version) for key in scan_folder(models).versions}
    return wanted <= settled
