"""The contracts of pyproject.toml: complete, and broken by what they forbid."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.checkout import ROOT, project, sources

CONTRACTS = {
    contract["id"]: contract
    for contract in project()["tool"]["importlinter"]["contracts"]
}
PURE = [
    "domain",
    "wire",
    "admission",
    "comparison",
    "scheduling",
    "delivery",
    "rollout",
    "registry",
    "accounting",
]
LAYERED = {
    name.strip(" ()")
    for layer in CONTRACTS["layers"]["layers"]
    for name in layer.split("|")
}


def units() -> set[str]:
    """The packages and modules directly inside `headrace` and `services`."""
    found = set()
    for path in sources("libs", "services"):
        parts = path.parts[1:] if path.parts[0] == "libs" else path.parts
        if len(parts) > 1 and parts[1] != "__init__.py":
            found.add(f"{parts[0]}.{parts[1].removesuffix('.py')}")
    return found


def module_of(checkout: Path, name: str) -> Path:
    """The file of a package or module; an empty package where there is none yet."""
    root = checkout / "libs" if name.startswith("headrace") else checkout
    path = root.joinpath(*name.split("."))
    if path.with_suffix(".py").exists():
        return path.with_suffix(".py")
    path.mkdir(exist_ok=True)
    (path / "__init__.py").touch()
    return path / "__init__.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    for path in sources("libs", "services"):
        (checkout / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, checkout / path)
    return checkout


def test_every_package_has_its_place_in_the_layers() -> None:
    assert units() - LAYERED == set()


def test_only_what_is_not_there_yet_may_be_missing() -> None:
    optional = re.findall(r"\(([\w.]+)\)", " ".join(CONTRACTS["layers"]["layers"]))
    assert set(optional) & units() == set()


def test_every_package_of_decisions_is_held_pure() -> None:
    existing = {f"headrace.{name}" for name in PURE} & units()
    assert set(CONTRACTS["pure"]["source_modules"]) == existing


def broken_contracts(checkout: Path) -> set[str]:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            *("--no-logo", "--cache-dir", checkout / "cache"),
        ],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": f"{checkout / 'libs'}:{checkout}"},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = {
        identity: re.search(rf"{re.escape(found['name'])} (KEPT|BROKEN)", done.stdout)
        for identity, found in CONTRACTS.items()
    }
    assert None not in verdicts.values(), done.stdout + done.stderr
    return {
        name for name, verdict in verdicts.items() if verdict and verdict[1] == "BROKEN"
    }


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("headrace.domain", "headrace.wire", "layers"),
        ("headrace.embedded", "headrace.broker", "layers"),
        ("headrace.delivery", "headrace.scheduling", "layers"),
        ("services.ingress", "services.batch_former", "layers"),
        ("services.ctl", "headrace.testing", "layers"),
        ("headrace.delivery", "random", "pure"),
        ("headrace.embedded", "confluent_kafka", "homes"),
        ("services.gpu_worker", "onnxruntime", "homes"),
    ],
)
def test_a_planted_import_breaks_its_contract(
    copy: Path, importer: str, imported: str, contract: str
) -> None:
    planted = module_of(copy, importer)
    original = planted.read_text("utf-8")
    if imported.startswith(("headrace", "services")):
        module_of(copy, imported)
    planted.write_text(f"{original}\nimport {imported}\n", "utf-8")
    try:
        assert contract in broken_contracts(copy)
    finally:
        planted.write_text(original, "utf-8")


def test_what_is_allowed_breaks_nothing(copy: Path) -> None:
    assert broken_contracts(copy) == set()
