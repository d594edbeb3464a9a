"""What is tracked in this checkout."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def tracked() -> list[Path]:
    """Every tracked file that exists, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - git is wherever the user has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = map(Path, listed.stdout.strip("\0").split("\0"))
    return [path for path in paths if (ROOT / path).is_file()]


def sources(*tops: str) -> list[Path]:
    """Python files under these folders of the root, without generated ones."""
    return [
        path
        for path in tracked()
        if path.suffix == ".py"
        and path.parts[0] in tops
        and "_generated" not in path.parts
    ]


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)
