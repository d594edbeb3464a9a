"""``python -m loadtest.peers``: Headrace and other model servers, side by side."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import onnx
from cyclopts import Parameter
from onnx.reference import ReferenceEvaluator
from rich.console import Console

from headrace.errors import HeadraceError, SetupError
from loadtest import models
from loadtest.command import new_app, run_command
from loadtest.peers import bentoml, kserve, litserve, mlserver, mosec, ray, triton
from loadtest.peers.comparing import Failure, plan
from loadtest.peers.environments import REQUIREMENTS, locked
from loadtest.peers.forms import INPUT, Row, rows
from loadtest.peers.measuring import measured
from loadtest.peers.report import (
    Document,
    print_document,
    read_document,
    write_document,
)
from loadtest.peers.servers import Probe
from loadtest.peers.systems import Setting, System, floor, fused, headrace, of_peer
from loadtest.scenario import Simulated, read_scenario
from loadtest.sending import generator_command

_WIDTH = 220
_SCENARIOS = Path(__file__).parent / "scenarios"
_NAMES = ("tiny", "accelerator", "overload", "kill")
_OWN = {"floor": floor, "fused": fused}
_PEERS = {
    "litserve": litserve.PEER,
    "bentoml": bentoml.PEER,
    "mosec": mosec.PEER,
    "ray": ray.PEER,
    "mlserver": mlserver.PEER,
    "kserve": kserve.PEER,
    "triton": triton.PEER,
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared.

    Parameters
    ----------
    only
        Peers, separated by commas; fused is Headrace's fused mode, floor a raw ASGI app
        on uvicorn [default: all of them]. Headrace is always measured beside them.
    scenario
        Of tiny, accelerator, overload and kill, separated by commas [default: all].
    rounds
        Everything so often, interleaved; medians are shown.
    seconds
        Length of each run but the killed one [default: the scenario's].
    add
        To what the folder holds of earlier runs.
    generator
        c, python, or auto: c where there is a compiler.
    out
        Folder of the JSON file, the page and the servers' logs.
    """

    only: str = ""
    scenario: str = ""
    rounds: int = 1
    seconds: float | None = None
    add: Annotated[bool, Parameter(negative=())] = False
    generator: str = "auto"
    out: Path = Path(".headrace/loadtest")


def compare(options: Options = Options()) -> int:
    """Measure Headrace and its peers; the exit status is 1 if a promise is not held."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    chosen = _chosen(options.only, [*_OWN, *_PEERS], "systems")
    names = _chosen(options.scenario, _NAMES, "scenarios")
    peers = {name: _PEERS[name] for name in chosen if name in _PEERS}
    with_json = any(peer.form.kind == "JSON" for peer in peers.values())
    systems = [
        headrace(with_json=with_json),
        *(_OWN[name]() for name in chosen if name in _OWN),
        *(of_peer(peer, name) for name, peer in peers.items()),
    ]
    document = read_document(options.out) if options.add else Document()
    document.settings |= {each.name: each.settings for each in systems}
    with tempfile.TemporaryDirectory(prefix="headrace-peers-") as folder:
        settings = {
            name: _setting(name, Path(folder), options.out / "peers") for name in names
        }
        rounds = range(document.rounds, document.rounds + options.rounds)
        for step in plan(names, [each.name for each in systems], rounds):
            (system,) = (each for each in systems if each.name == step.system)
            if step.scenario in system.scenarios:
                console.print(f"{step.scenario}: {step.system}", style="dim")
                setting = settings[step.scenario]
                _measure(system, setting, step.round, options, document)
                # What was measured outlives whoever stops the rest.
                write_document(options.out, document)
    page = write_document(options.out, document)
    print_document(document, console)
    console.print(f"report: {page}")
    return 0 if all(each.held for each in document.verdicts) else 1


def _chosen(text: str, known: Iterable[str], what: str) -> list[str]:
    """Raises SetupError at a name that is not ``known``."""
    names = list(filter(None, text.split(",")))
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SetupError(
            f"{', '.join(unknown)}: there are the {what} {', '.join(known)}"
        )
    return [name for name in known if not names or name in names]


def _setting(name: str, folder: Path, logs: Path) -> Setting:
    scenario = read_scenario(str(_SCENARIOS / f"{name}.toml"))
    (model,) = scenario.models.values()
    row = rows()[0]
    path = folder / "model.onnx"
    if isinstance(model, Simulated):
        outputs: Row = row
    else:
        content = models.tiny_onnx()
        path.write_bytes(content)
        evaluated: Any = ReferenceEvaluator(onnx.load_from_string(content)).run(
            None, {INPUT: row}
        )
        outputs = evaluated[0]
    return Setting(name, scenario, path, Probe(row, outputs.ravel()), logs.absolute())


def _measure(
    system: System,
    setting: Setting,
    number: int,
    options: Options,
    document: Document,
) -> None:
    """What happens to one system does not stop the others."""
    command = generator_command(options.generator, options.out)
    try:
        for found in measured(
            system, setting, number, command=command, seconds=options.seconds
        ):
            document.measurements.append(found)
    except (HeadraceError, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        document.failures.append(Failure(system.name, setting.name, str(error)))


def lock(*names: str) -> None:
    """Resolve the peers' requirements anew.

    Parameters
    ----------
    names
        Of files in loadtest/peers/requirements [default: all of them]
    """
    for name in names or sorted(each.stem for each in REQUIREMENTS.glob("*.in")):
        print(locked(name))


def main() -> None:
    app = new_app("loadtest.peers")
    app.default(compare)
    app.command(lock)
    run_command(app)


if __name__ == "__main__":
    main()
