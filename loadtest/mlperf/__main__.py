"""``python -m loadtest.mlperf``: Headrace under MLPerf's LoadGen."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from headrace.errors import SetupError
from loadtest import models, platform
from loadtest.command import new_app, run_command
from loadtest.mlperf.asking import Client, Terms, run
from loadtest.mlperf.outcome import OFFLINE, SERVER, SHARES, SINGLE, Outcome, held
from loadtest.peers.forms import INPUT, rows
from loadtest.scenario import Mlp, Model, Platform, Simulated
from loadtest.summary import machine
from services.ctl.client import InferRequest, infer_request

_PATH = "/v2/models/model/infer"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """How LoadGen is run.

    Parameters
    ----------
    only
        accelerator or tiny [default: both].
    seconds
        Length of a run, at least; MLPerf's own rules want 600.
    bound_ms
        Server: of the 99th percentile.
    connections
        Requests on their way at once, at most.
    out
        Folder of the JSON file.
    """

    only: str = ""
    seconds: float = 10.0
    bound_ms: float = 100.0
    connections: int = 256
    out: Path = Path(".headrace/loadtest")


def mlperf(options: Options = Options()) -> int:
    """Offline, Server and SingleStream; the exit status is 1 if the server rate of the
    simulated accelerator is below what is promised."""
    console = Console()
    known: dict[str, Model] = {
        "accelerator": Simulated(kind="simulated", alpha_ms=5, beta_ms=0.25),
        "tiny": Mlp(kind="mlp"),
    }
    if options.only and options.only not in known:
        raise SetupError(f"--only {options.only}: there are {', '.join(known)}")
    found: dict[str, list[Outcome]] = {}
    for name, model in known.items():
        if options.only in ("", name):
            found[name] = list(_runs(model, options))
            _print(name, found[name], console)
    options.out.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "bound_ms": options.bound_ms, "runs": found}
    path = options.out / "mlperf.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    verdict = held(found.get("accelerator", ()))
    return 0 if verdict is None or verdict[1] else 1


def _runs(model: Model, options: Options) -> Iterator[Outcome]:
    """The first rate within the bound, from the highest down, ends the search."""
    with tempfile.TemporaryDirectory(prefix="headrace-mlperf-") as folder:
        models.write_models(Path(folder), {"model": model})
        with platform.started(Platform(), Path(folder)) as running:
            url = running.document.http[0]
            patient = Client(url, _PATH, _requests(None), options.connections)
            with patient.asking():
                # The first warms up, and says how much there is to expect.
                terms = Terms(OFFLINE, options.seconds, 1000, options.bound_ms)
                terms = terms._replace(rate=run(patient, terms).per_second)
                offline = run(patient, terms)
                yield offline
                yield run(patient, terms._replace(scenario=SINGLE))
            bounded = Client(
                url, _PATH, _requests(options.bound_ms), options.connections
            )
            with bounded.asking():
                for share in SHARES:
                    rate = share * offline.per_second
                    server = run(bounded, terms._replace(scenario=SERVER, rate=rate))
                    yield server
                    if server.valid:
                        return


def _requests(limit_ms: float | None) -> list[InferRequest]:
    """Those of the server scenario name its bound as their limit."""
    limit = {} if limit_ms is None else {"headrace-timeout-ms": f"{limit_ms:.0f}"}
    made = [infer_request({INPUT: row}) for row in rows()]
    return [InferRequest(body, {**headers, **limit}) for body, headers in made]


def _print(name: str, outcomes: list[Outcome], console: Console) -> None:
    table = Table(title=f"MLPerf LoadGen: {name}", box=box.SIMPLE_HEAD)
    for heading in ("scenario", "valid", "/s", "p50 ms", "p99 ms", "failed"):
        table.add_column(heading, justify="left" if heading == "scenario" else "right")
    for each in outcomes:
        table.add_row(
            each.scenario,
            "yes" if each.valid else "no",
            f"{each.per_second:.0f}",
            f"{each.p50_ms:.1f}",
            f"{each.p99_ms:.1f}",
            f"{each.failed}",
        )
    console.print(table)
    verdict = held(outcomes)
    if verdict is not None:
        console.print(f"server rate / offline rate: {verdict[0]:.3f}", highlight=False)


def main() -> None:
    app = new_app("loadtest.mlperf")
    app.default(mlperf)
    run_command(app)


if __name__ == "__main__":
    main()
