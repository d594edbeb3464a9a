"""How every load test's command line is run."""

from __future__ import annotations

import sys
from typing import NoReturn

from cyclopts import App, CycloptsError

from headrace.errors import HeadraceError

__all__ = ["new_app", "run_command"]

_USAGE = 2


def new_app(name: str) -> App:
    return App(name=name, help_format="plaintext", version_flags=())


def run_command(app: App) -> NoReturn:
    """End with what the command returns, or with one sentence about what is wrong."""
    try:
        status = app(
            sys.argv[1:],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (CycloptsError, HeadraceError) as error:
        print(f"{app.name[0]}: {error}", file=sys.stderr)
        sys.exit(_USAGE)
    sys.exit(status if isinstance(status, int) else 0)
