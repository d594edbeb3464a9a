"""Whether everything that ``up`` started can answer, models included."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from headrace.broker import KafkaConnection
from headrace.domain import ModelState
from headrace.errors import BusError
from headrace.repository import scan_folder
from services.ctl.models import VersionRow, announced_versions, bare_sentences
from services.ctl.where import topic_prefix

__all__ = ["await_ready", "ready_sentences"]

_POLL_S = 0.1
_ANSWER_WITHIN_S = 2.0

_Versions = set[tuple[str, str]]


def await_ready(
    urls: Sequence[str],
    ingresses: Sequence[str],
    models: Path,
    connection: KafkaConnection,
    stop: threading.Event,
) -> bool:
    """Wait until every process is ready, and every version folder is served by every
    ingress or refused by the workers; False: ``stop`` was set first."""
    # Not through the proxy that the environment may name: all of it is local.
    with httpx.Client(timeout=_ANSWER_WITHIN_S, trust_env=False) as client:
        while not stop.wait(_POLL_S):
            try:
                if not all(client.get(f"{url}/readyz").is_success for url in urls):
                    continue
                served = [_served(client, url) for url in ingresses]
                wanted = {(key.model, key.version) for key in scan_folder(models)}
                missing = {key for key in wanted if not all(key in s for s in served)}
                if not missing or missing <= _refused(connection):
                    return True
            except (httpx.TransportError, BusError):
                continue
    return False


def ready_sentences(
    urls: Sequence[str], folder: Path, rows: Sequence[VersionRow]
) -> list[str]:
    """What is served where, what is not and why, and what to do if there is nothing."""
    refused = [row for row in rows if ModelState.REFUSED in row.slots]
    served = {row.model for row in rows if ModelState.READY in row.slots}
    count = f"{len(served)} model{'' if len(served) == 1 else 's'}"
    sentences = [
        f"ready: {' '.join(urls)} serves {count} from {folder} (Ctrl-C ends it)",
        *(
            f"refused: {row.model}/{row.version}: {'; '.join(row.reasons)}"
            for row in refused
        ),
        *bare_sentences(folder),
    ]
    if not served:
        sentences.append(
            f"no model is served: put one into {folder} as MODEL/VERSION/model.onnx, "
            f"which takes a second; `make demo` makes three in .headrace/models"
        )
    return sentences


def _served(client: httpx.Client, ingress: str) -> _Versions:
    index = client.post(f"{ingress}/v2/repository/index")
    entries = index.json() if index.is_success else []
    return {(e["name"], e["version"]) for e in entries if e["state"] == "READY"}


def _refused(connection: KafkaConnection) -> _Versions:
    """Versions that workers have refused, and that none of them loads or serves."""
    return {
        (row.model, row.version)
        for row in asyncio.run(announced_versions(connection, topic_prefix()))
        if row.slots.keys() == {ModelState.REFUSED}
    }
