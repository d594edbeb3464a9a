"""The ``headrace`` command."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from services.ctl.errors import UsageError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["main"]

_FAILED = 1
_USAGE = 2
_INTERRUPTED = 130


def main() -> None:
    """Run one command. Exit status: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C (but
    0 of ``up``)."""
    # What a library has to say comes as one sentence, in an error of ours.
    logging.basicConfig(handlers=[logging.NullHandler()])
    try:
        status = _run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = _INTERRUPTED
        if sys.argv[1:2] == ["up"]:
            # Ctrl-C is how it ends, also before it has begun.
            print("headrace: stopped before it was ready", file=sys.stderr)
            status = 0
    except BrokenPipeError:
        # Whoever read our lines has enough of them; there is none for the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _FAILED
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    # Here, so that Ctrl-C during the quarter of a second that it takes ends quietly.
    from cyclopts import CycloptsError, UnusedCliTokensError  # noqa: PLC0415

    try:
        status = _app()(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except UnusedCliTokensError as error:
        # The command's name, and what it takes no more of.
        command = " ".join(error.command_chain or ())
        extra = " ".join(error.unused_tokens or ())
        print(
            f"headrace: `{command}` takes no further argument: {extra}. See "
            f"`headrace {command} --help`.",
            file=sys.stderr,
        )
        return _USAGE
    except (CycloptsError, UsageError) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return _USAGE
    except HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)
        return _FAILED
    return status if isinstance(status, int) else 0


def _app() -> App:
    """Commands by the name of their function, imported when they are called."""
    from cyclopts import App  # noqa: PLC0415 - as above

    app = App(
        name="headrace",
        help="Full GPU batches out of single requests, through Apache Kafka.",
        version=_version,
        help_format="plaintext",
    )
    for command, function, help_text in (
        ("up", "up:up", "Start Kafka and the services here, until Ctrl-C."),
        ("down", "up:down", "Stop what `up` started."),
        ("demo", "demo.show:demo", "Real inputs to real models, with figures."),
        ("infer", "infer:infer", "Send one request to a model."),
        ("models", "models:models", "Which versions are served, and which are not."),
        ("topics", "topics:topics", "What waits in the queue, by lane and priority."),
        ("audit", "audit:audit", "Whether every request got what it was promised."),
        ("jobs", "jobs:app", "Rows of files through idle capacity, into a file."),
        ("deadletters", "deadletters:app", "What could not be answered."),
        ("explain", "explain:explain", "Why a batch or a request went as it went."),
        ("show", "show:show", "A request's whole life, with its answer."),
        ("tail", "tail:tail", "The log as it grows, decoded."),
        ("replay", "replay:replay", "Recorded requests once more, and what changed."),
        ("simulate", "simulate:simulate_pool", "A pool in virtual time, in figures."),
        ("doctor", "doctor:doctor", "What this machine lacks, and how to get it."),
    ):
        app.command(f"services.ctl.{function}", name=command, help=help_text)
    return app


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - 80 ms for one option

    return version("headrace")


if __name__ == "__main__":
    main()
