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
MANIFEST_BYTES_MAX = 64 * 1024
"""A longer ``model.toml`` is refused unread."""


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
    if path.stat().st_size > MANIFEST_BYTES_MAX:
        raise ModelRefused(f"{MANIFEST_NAME} is longer than {MANIFEST_BYTES_MAX} bytes")
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelRefused(f"{MANIFEST_NAME} is not TOML: {error}") from error
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        faults = [_fault(each["loc"], each["msg"]) for each in error.errors()]
        raise ModelRefused(f"{MANIFEST_NAME}: {'; '.join(faults)}") from error


def _fault(where: tuple[int | str, ...], text: str) -> str:
    key = ".".join(str(part) for part in where)
    if text == "Extra inputs are not permitted":
        known = ", ".join(sorted(Manifest.model_fields))
        text = "unknown key" + (f" (known: {known})" if len(where) == 1 else "")
    return f"{key}: {text}" if key else text.removeprefix("Value error, ")
