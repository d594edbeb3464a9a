"""The page for those who bring a model: its keys are the code's, its examples run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headrace.domain import Manifest, PaddingManifest
from headrace.domain.manifest import SimulatedInput
from headrace.repository import MANIFEST_NAME, VersionKey, read_manifest, scan_folder
from headrace.runtime import DeviceSettings, load, open_device
from tests.architecture.checkout import ROOT

PAGE = (ROOT / "libs/headrace/repository/README.md").read_text()
ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \|", re.MULTILINE)


class Key(NamedTuple):
    name: str
    default: object


def keys(model: type[BaseModel], beginning: str = "") -> list[Key]:
    return [
        Key(f"{beginning}{name}", default(info))
        for name, info in model.model_fields.items()
    ]


def default(info: FieldInfo) -> object:
    if info.is_required():
        return "needed"
    value = info.get_default()
    return list(value) if isinstance(value, tuple) else value


def told(cell: str) -> object:
    if not cell.startswith("`"):
        return None if cell == "none" else cell
    return tomllib.loads(f"value = {cell.strip('`')}")["value"]


def example(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_page_lists_every_key_with_its_default() -> None:
    expected = [
        *(key for key in keys(Manifest) if key.name != "padding"),
        *keys(PaddingManifest, "padding."),
        *keys(SimulatedInput, "inputs."),
    ]
    listed = [Key(name, told(cell)) for name, cell in ROW.findall(PAGE)]
    assert sorted(listed, key=str) == sorted(expected, key=str)


def test_the_example_in_python_makes_a_model_that_batches(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", example("python")], cwd=tmp_path, check=True)
    models = tmp_path / "models"
    (key,) = scan_folder(models)
    assert key == VersionKey("double", "1")
    device = open_device(DeviceSettings(provider="cpu"))
    loaded = load(models / "double/1/model.onnx", Manifest(), device)
    assert (loaded.probed.max_batch, loaded.probed.warnings) == (32, ())


def test_the_example_in_toml_is_a_whole_model(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text(example("toml"))
    manifest = read_manifest(tmp_path)
    assert (manifest.backend, manifest.max_batch) == ("simulated", 64)
