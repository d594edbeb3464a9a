from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.repository import VersionKey, content_sha256, scan_folder
from tests.models.folders import put_version

KEY = VersionKey("addsub", "1")


def test_versions_are_found_and_what_is_not_one_is_named(tmp_path: Path) -> None:
    put_version(tmp_path, "addsub", "1", b"a")
    put_version(tmp_path, "addsub", "12", b"b")
    put_version(tmp_path, "stats", "1", b"c")
    put_version(tmp_path, "my.model", "1", b"c")
    put_version(tmp_path, ".git", "1", b"c")
    (tmp_path / "addsub" / "0").mkdir()
    (tmp_path / "addsub" / "01").mkdir()
    (tmp_path / "addsub" / "latest").mkdir()
    (tmp_path / "addsub" / os.fsdecode(b"1\xff")).mkdir()
    (tmp_path / os.fsdecode(b"m\xff") / "1").mkdir(parents=True)
    (tmp_path / "addsub" / "config.pbtxt").touch()
    (tmp_path / "README").touch()

    scan = scan_folder(tmp_path)

    problems = {str(key): fingerprint.problem for key, fingerprint in scan.items()}
    strange = "it must be a number from 1 without leading zeros, of at most 18 digits"
    assert problems.pop("addsub/1") == problems.pop("addsub/12") == ""
    assert problems.keys() == {
        *("addsub/0", "addsub/01", "addsub/latest", "addsub/1?", "stats/1"),
        *("my.model/1", "m?/1"),
    }
    assert problems["addsub/01"] == (
        f"version name '01' of model 'addsub' is not allowed: {strange}"
    )
    assert strange in problems["addsub/1?"]
    assert problems["stats/1"] == "model name 'stats' is reserved"
    assert problems["my.model/1"].startswith("model name 'my.model' is not allowed")
    "".join(problems.values()).encode()


def test_a_repository_that_cannot_be_listed_is_an_error_not_an_empty_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(SetupError, match="No such file or directory"):
        scan_folder(tmp_path / "missing")


@pytest.mark.parametrize("target", ["/etc/hosts", "../../../outside"])
def test_a_link_out_of_the_version_folder_is_a_problem(
    tmp_path: Path, target: str
) -> None:
    (tmp_path / "outside").write_text("secret")
    folder = put_version(tmp_path / "models", "addsub", "1", b"a")
    (folder / "weights.bin").symlink_to(target)

    fingerprint = scan_folder(tmp_path / "models")[KEY]

    assert "'weights.bin' is a symbolic link out of" in fingerprint.problem


@pytest.mark.parametrize("name", [b"\xff.bin", b"\xff/weights.bin"])
def test_a_name_that_is_not_utf_8_is_a_problem_that_can_be_told(
    tmp_path: Path, name: bytes
) -> None:
    folder = put_version(tmp_path, "addsub", "1", b"a")
    path = folder / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.touch()

    problem = scan_folder(tmp_path)[KEY].problem

    assert "is not UTF-8" in problem
    assert "\\udcff" in problem.encode().decode()


def test_a_link_to_itself_is_a_problem(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "addsub", "1", b"a")
    (folder / "weights.bin").symlink_to("weights.bin")

    problem = scan_folder(tmp_path)[KEY].problem

    assert problem == "it cannot be read: Too many levels of symbolic links"


def test_a_link_inside_the_version_folder_is_fine(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "addsub", "1", b"a")
    (folder / "alias.bin").symlink_to("model.onnx")

    assert scan_folder(tmp_path)[KEY].problem == ""


@pytest.mark.parametrize("link", ["model", "version"])
def test_a_linked_model_or_version_folder_is_a_problem(
    tmp_path: Path, link: str
) -> None:
    elsewhere = put_version(tmp_path / "elsewhere", "addsub", "1", b"a")
    models = tmp_path / "models"
    models.mkdir()
    if link == "model":
        (models / "addsub").symlink_to(elsewhere.parent)
    else:
        (models / "addsub").mkdir()
        (models / "addsub" / "1").symlink_to(elsewhere)

    assert "symbolic link" in scan_folder(models)[KEY].problem


def test_a_pipe_in_a_version_folder_is_a_problem_and_never_opened(
    tmp_path: Path,
) -> None:
    folder = put_version(tmp_path, "addsub", "1", b"a")
    os.mkfifo(folder / "pipe")

    assert "not a regular file" in scan_folder(tmp_path)[KEY].problem


def test_the_digest_covers_names_and_contents_and_not_times(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "addsub", "1", b"a", "max_batch = 2")

    def digest() -> str:
        return content_sha256(tmp_path, KEY, scan_folder(tmp_path)[KEY])

    first = digest()
    os.utime(folder / "model.onnx", (1, 1))
    touched = digest()
    (folder / "model.toml").write_text("max_batch = 3")
    edited = digest()
    (folder / "model.toml").rename(folder / "other.toml")
    renamed = digest()

    assert len(first) == 64
    assert touched == first
    assert len({first, edited, renamed}) == 3
