"""Reading ``model.toml``, with errors that name the key and what would be right."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import ValidationError

from headrace.domain import Manifest
from headrace.errors import ModelRefused

__all__ = ["MANIFEST_NAME", "MODEL_NAME", "read_manifest"]

MANIFEST_NAME = "model.toml"
MODEL_NAME = "model.onnx"
MANIFEST_BYTES_MAX = 16 * 1024
"""A longer ``model.toml`` is refused unread: the parser's time grows with the square
of a dotted key, to half a minute at four times this."""

FAULTS_TOLD_MAX = 8
KEY_CHARS_MAX = 120
"""Of a refused manifest so many faults are told, with keys cut to this."""


def read_manifest(folder: Path) -> Manifest:
    """The version folder's manifest, all defaults where it has none.

    Raises :class:`headrace.errors.ModelRefused`; also when what the manifest asks
    for does not lie beside it.
    """
    path = folder / MANIFEST_NAME
    manifest = _parsed(path) if path.is_file() else Manifest()
    has_model = (folder / MODEL_NAME).is_file()
    if manifest.backend == "onnx" and not has_model:
        raise ModelRefused(
            f"the version folder has no {MODEL_NAME}; a simulated accelerator needs "
            f'a {MANIFEST_NAME} with backend = "simulated"'
        )
    if manifest.backend == "simulated" and has_model:
        raise ModelRefused(
            f'{MANIFEST_NAME} says backend = "simulated", but there is a '
            f"{MODEL_NAME}: remove one of them"
        )
    return manifest


def _parsed(path: Path) -> Manifest:
    with path.open("rb") as file:
        raw = file.read(MANIFEST_BYTES_MAX + 1)
    if len(raw) > MANIFEST_BYTES_MAX:
        raise ModelRefused(f"{MANIFEST_NAME} is longer than {MANIFEST_BYTES_MAX} bytes")
    try:
        values = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelRefused(f"{MANIFEST_NAME} is not TOML: {error}") from error
    except ValueError as error:
        # The interpreter's own bound on the digits of an integer.
        raise ModelRefused(
            f"{MANIFEST_NAME} holds a number of too many digits"
        ) from error
    except RecursionError as error:
        raise ModelRefused(f"{MANIFEST_NAME} nests values too deeply") from error
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        faults = [_fault(each["loc"], each["msg"]) for each in errors[:FAULTS_TOLD_MAX]]
        if len(errors) > FAULTS_TOLD_MAX:
            faults.append(f"and {len(errors) - FAULTS_TOLD_MAX} more")
        raise ModelRefused(f"{MANIFEST_NAME}: {'; '.join(faults)}") from error


def _fault(where: tuple[int | str, ...], text: str) -> str:
    key = ".".join(str(part) for part in where)[:KEY_CHARS_MAX]
    if text == "Extra inputs are not permitted":
        known = ", ".join(sorted(Manifest.model_fields))
        text = "unknown key" + (f" (known: {known})" if len(where) == 1 else "")
    return f"{key}: {text}" if key else text.removeprefix("Value error, ")
