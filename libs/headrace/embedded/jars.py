"""The jars of Apache Kafka: fetched once into a cache, checked at every start.

``python -m headrace.embedded.jars`` resolves the version below anew and prints the
list that is kept in ``jars.sha256``.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import SetupError

if TYPE_CHECKING:
    from jgo.maven import MavenContext

__all__ = [
    "KAFKA_VERSION",
    "Jar",
    "cache_folder",
    "fetch_jars",
    "listed_jars",
    "missing_jars",
]

KAFKA_VERSION = "4.4.0"
_ROOTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
_DOWNLOADS_AT_ONCE = 8
_ATTEMPTS = 3
_ANSWER_WITHIN_S = 20


@dataclass(frozen=True, slots=True)
class Jar:
    """One file of the broker's class path."""

    coordinate: str
    sha256: str

    @property
    def filename(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def listed_jars() -> tuple[Jar, ...]:
    """The committed list."""
    text = files("headrace.embedded").joinpath("jars.sha256").read_text("utf-8")
    lines = (line.split() for line in text.splitlines())
    return tuple(Jar(coordinate, sha256) for sha256, coordinate in lines)


def cache_folder() -> Path:
    """Where the jars are kept for all checkouts of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / f"kafka-{KAFKA_VERSION}"


def missing_jars(cache: Path | None = None) -> tuple[Jar, ...]:
    """Which jars the next start has to fetch."""
    folder = cache or cache_folder()
    return tuple(jar for jar in listed_jars() if not (folder / jar.filename).exists())


def fetch_jars(
    cache: Path,
    *,
    say: Callable[[str], None],
    repositories: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """The checked class path; fetches what ``cache`` lacks.

    ``repositories`` maps names to addresses; without it the user's settings of jgo
    hold, and without those its default. Raises SetupError if a jar cannot be had or
    is not the one that was listed.
    """
    jars = listed_jars()
    missing = missing_jars(cache)
    if missing:
        say(f"fetching Apache Kafka {KAFKA_VERSION}: {len(missing)} jars, once")
        _fetch_all(missing, cache, repositories)
    for jar in jars:
        path = cache / jar.filename
        if _sha256(path) != jar.sha256:
            raise SetupError(
                f"{path} is not the file that this version of Headrace was tested "
                f"with (its sha256 differs): delete it and start again."
            )
    return tuple(cache / jar.filename for jar in jars)


def _fetch_all(
    missing: tuple[Jar, ...], cache: Path, repositories: Mapping[str, str] | None
) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix="incoming-", dir=cache))
    except OSError as error:
        raise SetupError(
            f"The jars of Apache Kafka cannot be kept in {cache} ({error.strerror}): "
            f"name another cache folder with XDG_CACHE_HOME."
        ) from error
    pool = ThreadPoolExecutor(_DOWNLOADS_AT_ONCE)
    try:
        context = _context(staging, repositories)
        for _ in pool.map(lambda jar: _fetch(jar, context, cache), missing):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(staging, ignore_errors=True)


def _context(
    repo_cache: Path, repositories: Mapping[str, str] | None
) -> "MavenContext":
    from jgo.config import GlobalSettings  # noqa: PLC0415 - 0.5 s, first start alone
    from jgo.maven import MavenContext  # noqa: PLC0415 - the same

    remote = dict(repositories or GlobalSettings.load().repositories)
    return MavenContext(
        repo_cache=repo_cache, remote_repos=remote or None, timeout=_ANSWER_WITHIN_S
    )


def _fetch(jar: Jar, context: "MavenContext", cache: Path) -> None:
    incoming = _download(jar, context, cache)
    if _sha256(incoming) != jar.sha256:
        raise SetupError(
            f"{jar.filename} came with another sha256 than the one listed for it, so "
            f"it was not kept: start again; if that repeats, something between this "
            f"machine and the registry changes files, so copy {cache} from another "
            f"machine or name a running cluster with KAFKA_BOOTSTRAP_SERVERS."
        )
    incoming.replace(cache / jar.filename)


def _download(jar: Jar, context: "MavenContext", cache: Path) -> Path:
    group, artifact, version = jar.coordinate.split(":")
    failures: list[OSError | RuntimeError] = []
    while len(failures) < _ATTEMPTS:
        try:
            component = context.project(group, artifact).at_version(version)
            return component.artifact().resolve()
        # requests' errors are OSErrors; jgo raises RuntimeError for a refused file.
        except (OSError, RuntimeError) as error:
            failures.append(error)
            # A part of a file would pass for the whole one at the next attempt.
            for part in context.repo_cache.rglob(jar.filename):
                part.unlink()
    raise SetupError(
        f"{jar.filename} of Apache Kafka could not be fetched "
        f"({type(failures[-1]).__name__}): check the network (HTTPS_PROXY if there is "
        f"a proxy) and start again, or copy {cache} from a machine that has it, or "
        f"name a running cluster with KAFKA_BOOTSTRAP_SERVERS."
    ) from failures[-1]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resolve_list() -> str:
    from jgo.maven import Dependency  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        context = _context(Path(folder), None)
        roots = []
        for coordinate in _ROOTS:
            group, artifact, version = coordinate.split(":")
            component = context.project(group, artifact).at_version(version)
            roots.append(Dependency(component.artifact()))
        direct, transitive = context.resolver.resolve(roots)
        lines = [
            f"{_sha256(found.artifact.resolve())}  "
            f"{found.groupId}:{found.artifactId}:{found.version}\n"
            for found in direct + transitive
        ]
    return "".join(sorted(lines, key=lambda line: line.split()[1]))


if __name__ == "__main__":
    print(_resolve_list(), end="")  # noqa: T201 - this is a command
