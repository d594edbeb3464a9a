"""Write what follows from the schemas and the code's classes: ``make schemas``.

``schemas/*.proto`` become ``headrace/wire/_generated``; the classes of the JSON
records become ``schemas/*.schema.json``; the services' settings become the tables of
``libs/headrace/lifecycle/README.md``. Another root may be given to write to.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec
from grpc_tools import protoc
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headrace.wire import Announcement, Claim, Heartbeat
from headrace.wire.jobs import JobCancel, JobProgress, JobSpec
from services.batch_former.settings import OF_THE_BUS, FormerSettings
from services.gpu_worker.settings import GpuWorkerSettings
from services.ingress.settings import IngressSettings

SCHEMAS = Path(__file__).parent
RECORDS = (Announcement, Claim, Heartbeat, JobSpec, JobProgress, JobCancel)

SETTINGS_PAGE = Path("libs/headrace/lifecycle/README.md")
GROUPS_BEGIN = "<!-- What follows is written by `make schemas`. -->"
SERVICES: dict[str, type[BaseModel]] = {
    "ingress": IngressSettings,
    "batch former": FormerSettings,
    "GPU worker": GpuWorkerSettings,
}


def generate(root: Path) -> list[Path]:
    """Write every generated file under ``root``, and say which they are."""
    generated = root / "libs/headrace/wire/_generated"
    schemas = root / "schemas"
    generated.mkdir(parents=True, exist_ok=True)
    schemas.mkdir(exist_ok=True)
    protos = sorted(SCHEMAS.glob("*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={SCHEMAS}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={generated}",
            f"--pyi_out={generated}",
            *map(str, protos),
        ]
    )
    if status:
        sys.exit(status)
    written = [
        generated / f"{proto.stem}_pb2{suffix}"
        for proto in protos
        for suffix in (".py", ".pyi")
    ]
    for record in RECORDS:
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **msgspec.json.schema(record),
        }
        path = schemas / f"{record.__name__.lower()}.schema.json"
        path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
        written.append(path)
    written.append(_write_settings(root / SETTINGS_PAGE))
    return written


def _write_settings(page: Path) -> Path:
    """The page of the checkout, with its tables made anew."""
    page.parent.mkdir(parents=True, exist_ok=True)
    text = (SCHEMAS.parent / SETTINGS_PAGE).read_text(encoding="utf-8")
    introduction = text.partition(GROUPS_BEGIN)[0]
    lines = [f"{introduction}{GROUPS_BEGIN}", *_groups()]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _groups() -> Iterator[str]:
    readers: dict[tuple[str, type[BaseModel]], list[str]] = {}
    for service, settings in SERVICES.items():
        for group, info in settings.model_fields.items():
            kind = info.annotation
            assert isinstance(kind, type)
            readers.setdefault((group, kind), []).append(service)
    for (group, kind), services in sorted(readers.items(), key=str):
        yield f"\n## {group}"
        yield f"{_sentence(kind.__doc__ or '')}\nRead by: {', '.join(services)}.\n"
        yield "| variable | default | |\n|---|---|---|"
        texts = _docstrings(kind)
        for name, info in kind.model_fields.items():
            if (group, name) in OF_THE_BUS:
                continue
            text = _sentence(texts[name]) + _choices(info)
            variable = f"HEADRACE_{group}__{name}".upper()
            yield f"| `{variable}` | {_default(info)} | {text} |"


def _docstrings(kind: type[BaseModel]) -> dict[str, str]:
    """By field. Of several in a row the last one's docstring speaks for all."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    waiting: list[str] = []
    for statement, behind in pairwise([*tree.body, ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign):
            continue
        assert isinstance(statement.target, ast.Name)
        waiting.append(statement.target.id)
        match behind:
            case ast.Expr(value=ast.Constant(value=str(text))):
                texts |= dict.fromkeys(waiting, inspect.cleandoc(text))
                waiting = []
    assert not waiting, f"{kind.__name__}.{waiting[-1]} needs a docstring"
    return texts


def _sentence(text: str) -> str:
    """The first one, as Markdown."""
    first = re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
    return re.sub(r"(?::\w+:)?`+([^`]+)`+", r"`\1`", first)


def _choices(info: FieldInfo) -> str:
    kind = info.annotation
    if get_origin(kind) is Literal:
        names = get_args(kind)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        names = tuple(kind)
    else:
        return ""
    return f" One of {', '.join(f'`{name}`' for name in names)}."


def _default(info: FieldInfo) -> str:
    value = info.get_default()
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"`{value}`" if value or value == 0 else "none"


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SCHEMAS.parent)
