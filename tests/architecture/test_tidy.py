"""What no linter of ours checks."""

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests.architecture.checkout import ROOT, project, sources, tracked

MODULE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "docker-compose.yml",
    "k8s",
    "libs",
    "loadtest",
    "models.txt",
    "pyproject.toml",
    "requirements.lock",
    "schemas",
    "services",
    "tests",
}
MEANINGLESS = {
    *("base", "common", "core", "helper", "helpers"),
    *("impl", "manager", "misc", "processor", "shared", "stuff", "util", "utils"),
}
# Written in pieces, since this file is searched too.
REGISTRY_HOSTS = [
    "py" + "pi.org",
    "pythonhosted" + ".org",
    "maven" + ".apache.org",
    "maven" + ".org",
    "npmjs" + ".org",
    "npmjs" + ".com",
    "crates" + ".io",
    "proxy.golang" + ".org",
    "deb.debian" + ".org",
]
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(?:work|root|home)/[\w.-]")
BANNER = re.compile(r"^\s*#\s*[-=*#~]{3,}", re.MULTILINE)
# mypy and ruff refuse an ignore without a code; this adds the reason.
IGNORE = re.compile(r"# (noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\])(.*)$")

CODE = sources("libs", "services", "schemas", "tests", "loadtest")
PRODUCT = sources("libs", "services")
PACKAGES = [path for path in PRODUCT if path.name == "__init__.py"]


def text_of(path: Path) -> str:
    return (ROOT / path).read_text("utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def texts() -> list[tuple[Path, str]]:
    """Every tracked file that is text."""
    found = []
    for path in tracked():
        try:
            found.append((path, text_of(path)))
        except UnicodeDecodeError:
            continue
    return found


def public_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {
                    target.id for target in targets if isinstance(target, ast.Name)
                }
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return {
        name for name in names if not name.startswith("_") and name != "annotations"
    }


def declared_names(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case _:
                pass
    return None


def test_modules_stay_short() -> None:
    lines = {str(path): len(text_of(path).splitlines()) for path in CODE}
    assert {path: n for path, n in lines.items() if n > MODULE_LINES_MAX} == {}


def test_functions_stay_short() -> None:
    long: list[str] = []
    for path in CODE:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
    assert long == []


def test_modules_say_what_they_hold() -> None:
    silent = [str(path) for path in PRODUCT if not ast.get_docstring(tree_of(path))]
    assert silent == []


def test_modules_are_named_for_what_they_hold() -> None:
    assert [str(path) for path in CODE if path.stem in MEANINGLESS] == []


def test_no_package_is_empty() -> None:
    folders = {path.parent for path in PRODUCT if path.name != "__init__.py"}
    lonely = [
        str(path)
        for path in PACKAGES
        if path.parent not in folders
        and not any(path.parent in folder.parents for folder in folders)
        and len(tree_of(path).body) == 1
    ]
    assert lonely == []


@pytest.mark.parametrize("path", PACKAGES, ids=str)
def test_a_package_lists_what_others_may_use(path: Path) -> None:
    tree = tree_of(path)
    public = public_names(tree)
    declared = declared_names(tree)
    if declared is None:
        assert public == set()
    else:
        assert sorted(declared) == sorted(public)


def test_there_are_no_banners() -> None:
    assert [str(path) for path in CODE if BANNER.search(text_of(path))] == []


def unexplained(text: str) -> list[str]:
    """Ignores without a reason: behind it, in a comment above, or given on the line
    above for the same rule."""
    bare = []
    above, explained = "", ""
    for line in text.splitlines():
        found = IGNORE.search(line)
        if found is None:
            explained = ""
        else:
            rule, reason = found[1].strip(), found[2].strip()
            if reason or above.startswith("#"):
                explained = rule
            if rule != explained:
                bare.append(line.strip())
        above = line.lstrip()
    return bare


def test_every_ignore_has_a_reason() -> None:
    bare = [f"{path}: {line}" for path in CODE for line in unexplained(text_of(path))]
    ruff = project()["tool"]["ruff"]["lint"]
    codes = [*ruff["ignore"], *chain(*ruff["per-file-ignores"].values())]
    configured = text_of(Path("pyproject.toml"))
    bare += [code for code in codes if not re.search(rf'"{code}",\s+# \S', configured)]
    assert bare == []


def test_an_ignore_without_a_reason_is_found() -> None:
    text = """
        import a  @ noqa: PLC0415 - slow
        import b  @ noqa: PLC0415
        @ mypy does not know c
        c = 1  @ type: ignore[misc]
        import d  @ noqa: PLC0415
    """.replace("@", "#")
    assert unexplained(text) == ["import d  @ noqa: PLC0415".replace("@", "#")]


def test_the_top_level_stays_as_it_is() -> None:
    assert {path.parts[0] for path in tracked()} - TOP_LEVEL == set()


def test_no_file_names_a_registry_or_a_path_of_some_machine() -> None:
    named = [
        f"{path}: {host}"
        for path, text in texts()
        for host in REGISTRY_HOSTS
        if host in text
    ]
    named += [
        f"{path}: {found[0]}"
        for path, text in texts()
        for found in MACHINE_PATH.finditer(text)
    ]
    assert named == []


def test_the_lock_pins_by_hash_and_one_onnx_runtime() -> None:
    lock = text_of(Path("requirements.lock"))
    pins = re.findall(
        r"^[a-z][\w.-]*==\S+ .*\\\n    --hash=sha256:", lock, re.MULTILINE
    )
    assert len(pins) == len(re.findall(r"^[^ #\n]", lock, re.MULTILINE))
    assert "://" not in lock
    assert re.findall(r"^onnxruntime[\w-]*==", lock, re.MULTILINE) == [
        "onnxruntime-gpu=="
    ]


@pytest.mark.parametrize(
    "page", [path for path in tracked() if path.suffix == ".md"], ids=str
)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", text_of(page))
    local = [target for target in targets if "://" not in target]
    assert [
        target for target in local if not (ROOT / page.parent / target).exists()
    ] == []
