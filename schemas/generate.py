"""Write what follows from the schemas and the records' classes: ``make schemas``.

``schemas/*.proto`` become ``headrace/wire/_generated``; the classes of the JSON
records become ``schemas/*.schema.json``. Another root may be given to write to.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import msgspec
from grpc_tools import protoc

from headrace.wire import Announcement, Claim, Heartbeat

SCHEMAS = Path(__file__).parent
RECORDS = (Announcement, Claim, Heartbeat)


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
    return written


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SCHEMAS.parent)
