"""Jars come from a repository of the test's own, on this machine."""

import gc
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.embedded import cache_folder, missing_jars
from headrace.embedded.jars import fetch_jars, listed_jars
from headrace.errors import SetupError
from tests.addresses import nobody_listens

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(autouse=True)
def sockets_that_jgo_leaves() -> Iterator[None]:
    """Are collected here, lest their warnings count against another test."""
    yield
    gc.collect()


def say_nothing(_: str) -> None:
    return


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def cached() -> Path:
    """The user's cache, with every jar."""
    folder = cache_folder()
    fetch_jars(folder, say=say_nothing)
    return folder


@pytest.fixture
def repository(tmp_path: Path, cached: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder in a repository's layout and how it is served."""
    root = tmp_path / "repository"
    for jar in listed_jars():
        group, artifact, version = jar.coordinate.split(":")
        folder = root.joinpath(*group.split("."), artifact, version)
        folder.mkdir(parents=True)
        (folder / jar.filename).hardlink_to(cached / jar.filename)
    handler = partial(QuietHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield root, {"own": f"http://127.0.0.1:{server.server_address[1]}"}
        server.shutdown()
        serving.join()


def test_all_jars_are_fetched_once_and_nothing_else_stays(
    tmp_path: Path, repository: tuple[Path, dict[str, str]]
) -> None:
    cache = tmp_path / "cache"
    said: list[str] = []
    jars = fetch_jars(cache, say=said.append, repositories=repository[1])
    assert sorted(jars) == sorted(cache.iterdir())
    assert len(jars) == len(listed_jars())
    assert said == [f"fetching Apache Kafka 4.4.0: {len(jars)} jars, once"]
    shutil.rmtree(repository[0])
    assert fetch_jars(cache, say=said.append, repositories=repository[1]) == jars
    assert len(said) == 1


def test_a_changed_jar_is_not_kept(
    tmp_path: Path, repository: tuple[Path, dict[str, str]]
) -> None:
    changed = next(repository[0].rglob("slf4j-simple-1.7.36.jar"))
    content = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    cache = tmp_path / "cache"
    expected = r"slf4j-simple-1\.7\.36\.jar came with another sha256 .* start again"
    with pytest.raises(SetupError, match=expected):
        fetch_jars(cache, say=say_nothing, repositories=repository[1])
    assert "slf4j-simple-1.7.36.jar" in {jar.filename for jar in missing_jars(cache)}
    changed.write_bytes(content)
    fetch_jars(cache, say=say_nothing, repositories=repository[1])


def test_a_jar_that_changed_in_the_cache_is_refused(
    tmp_path: Path, cached: Path
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(cached, cache, copy_function=shutil.copy)
    broken = cache / listed_jars()[7].filename
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(SetupError, match=f"{broken.name} .* delete it and start again"):
        fetch_jars(cache, say=say_nothing)


def test_a_repository_that_lacks_a_jar_is_told(
    tmp_path: Path, repository: tuple[Path, dict[str, str]]
) -> None:
    next(repository[0].rglob("snakeyaml-*.jar")).unlink()
    with pytest.raises(SetupError, match="snakeyaml-.* could not be fetched"):
        fetch_jars(tmp_path / "c", say=say_nothing, repositories=repository[1])


def test_without_a_registry_the_ways_out_are_named(tmp_path: Path) -> None:
    with nobody_listens() as (host, port):
        nobody = f"http://{host}:{port}"
        with pytest.raises(SetupError, match="check the network") as refused:
            fetch_jars(tmp_path / "c", say=say_nothing, repositories={"nobody": nobody})
    assert f"copy {tmp_path / 'c'} from" in str(refused.value)
    assert "KAFKA_BOOTSTRAP_SERVERS" in str(refused.value)


def test_a_cache_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="another cache folder with XDG_CACHE_HOME"):
        fetch_jars(tmp_path / "file" / "c", say=say_nothing)


def test_the_cache_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/headrace/kafka-4.4.0")
