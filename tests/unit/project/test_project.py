"""The project keeps its own word: docs are fresh, versions exact, names and places of machines nowhere."""

import ast
import difflib
import os
import platform
import re
import runpy
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cloister
from cloister.privacy import errors

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOT_OURS = {".git", ".venv", "build", "dist", "node_modules"}


def tracked() -> Iterator[Path]:
    """The files of the project, as git sees them, or in a copy without git all that are not caches."""
    if (ROOT / ".git").exists():
        asked = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        names = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        yield from (ROOT / name for name in names if name and (ROOT / name).is_file())
        return
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name not in NOT_OURS and not name.endswith(("cache", "cache__"))]
        yield from (Path(folder) / name for name in names)


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """The code blocks of a page: language and text."""
    pattern = r"^( *)```([^\n]*)\n(.*?)^\1```$"
    for match in re.finditer(pattern, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        yield match[2].strip(), match[3]


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


# Docs.


def test_generated_pages_say_what_the_code_says():
    pages = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()
    kept = {name: text_of(ROOT / "docs" / name) for name in pages}
    changes = [
        f"{name} {line}"
        for name, text in pages.items()
        for line in difflib.unified_diff(kept[name].splitlines(), text.splitlines(), n=0, lineterm="")
    ]
    assert pages == kept, "stale: run `make docs` and commit.\n" + "\n".join(changes[:40])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_code_block_runs_or_is_no_program(page):
    # python, console and sh blocks are run by tests/docs/test_pages.py; these commands cannot be, inside a test run.
    outside = re.compile(r"(make( [a-z]+)+|git clone .*|cd \w+)$")
    for language, text in fences(page):
        assert language in {"python", "console", "sh", "text"}, f"{language!r} blocks are not run"
        if language in {"console", "sh"} and not text.startswith("$ "):
            assert all(outside.match(line) for line in text.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_a_page_names_exists(page):
    named = set(re.findall(r"^make ((?:[a-z]+ ?)+)$|`make ((?:[a-z]+ ?)+)`", text_of(page), re.MULTILINE))
    words = {word for pair in named for part in pair for word in part.split()}
    assert words <= makefile_targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(page)):
        if "://" not in target and not target.startswith("screens/"):
            assert (page.parent / target).exists(), target


def test_every_screenshot_on_a_page_is_taken_by_a_browser_test():
    tests = "".join(text_of(path) for path in (ROOT / "tests" / "browser").glob("test_*.py"))
    for target in re.findall(r"\]\(screens/hub-([a-z-]+)\.png\)", "".join(map(text_of, PAGES))):
        assert f'"{re.sub("-(desktop|phone)$", "", target)}' in tests, target


def test_the_changelog_has_the_version():
    assert f"\n## [{cloister.__version__}]" in text_of(ROOT / "CHANGELOG.md")


# Errors.


def test_error_codes_are_unique_and_well_formed():
    codes = [kind.code for kind in errors.catalogue()]
    assert codes
    assert not [code for code, times in Counter(codes).items() if times > 1]
    assert all(re.fullmatch(r"CLO-[1-9]\d\d", code) for code in codes)


def test_every_error_says_what_it_means_and_the_way_out():
    for kind in errors.catalogue():
        assert kind.__doc__
        assert kind.way_out.endswith(".")


def test_every_code_is_in_the_docs_and_in_the_tree_at_the_top_of_the_file():
    codes = {kind.code: kind.__name__ for kind in errors.catalogue()}
    listed = dict(re.findall(r"^### (CLO-\d+) (\w+)$", text_of(ROOT / "docs" / "errors.md"), re.MULTILINE))
    drawn = {code: name for name, code in re.findall(r"── (\w+) +(CLO-\d+)", errors.__doc__ or "")}
    assert listed == codes
    assert drawn == codes


def test_no_page_names_a_code_that_does_not_exist():
    known = {kind.code for kind in errors.catalogue()}
    for page in PAGES:
        assert set(re.findall(r"CLO-\d+", text_of(page))) <= known, page


# Installation.


def test_constraints_are_exact_and_sorted():
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", line) for line in CONSTRAINTS)
    assert sorted(CONSTRAINTS, key=lambda line: line.split("==")[0]) == CONSTRAINTS


def test_every_dependency_has_a_lower_bound_and_an_exact_version_that_meets_it():
    exact = dict(line.split("==") for line in CONSTRAINTS)
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for wanted in (Requirement(text) for group in lists for text in group):
        if wanted.name == PROJECT["name"]:
            continue
        assert any(part.operator == ">=" for part in wanted.specifier), wanted
        assert wanted.specifier.contains(exact[canonicalize_name(wanted.name)]), wanted


def test_what_is_installed_is_what_the_constraints_say():
    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None  # an extra that nobody asked for

    pairs = [(line.split("==")[0], line.split("==")[1]) for line in CONSTRAINTS]
    other = [
        f"{name} {found}, not {wanted}" for name, wanted in pairs if (found := installed(name)) not in (None, wanted)
    ]
    assert not other


def test_the_extras_are_the_agreed_ones():
    assert set(PROJECT["optional-dependencies"]) == {
        *(
            "hub",
            "report",
            "learn",
            "accounting",
            "jax",
            "spark",
            "postgres",
            "mongo",
            "shell",
            "crypto",
            "solver",
            "dev",
        )
    }


def test_the_readme_shows_the_commands_that_ci_runs():
    script = text_of(ROOT / ".ci" / "run")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert script.splitlines()[-2:] == ["make check test", "make slow"]
    assert "\nmake check test\n" in text_of(ROOT / "README.md")
    assert {"demo", "test", "check", "bench", "docs"} <= makefile_targets()


def test_nothing_names_an_index_or_a_host():
    for name in ("constraints.txt", "Makefile", ".ci/run", "pyproject.toml"):
        assert not re.search(r"https?://|index-url|find-links|trusted-host", text_of(ROOT / name)), name


def test_no_file_contains_a_place_or_name_of_a_machine():
    place = re.compile(r"(?<![\w.<>])/(?:root|home|work/(?:main|shared)|Users|opt)\b/?\w*")
    found = [str(path.relative_to(ROOT)) for path in tracked() if place.search(text_of(path))]
    assert not found
    results = [path for path in (ROOT / "benchmarks").rglob("*.json") if platform.node() in text_of(path)]
    assert not results


def test_every_reader_of_json_that_refuses_bad_text_refuses_deep_nesting_too():
    lenient = []
    for path in (ROOT / "src").rglob("*.py"):
        for block in (node for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, ast.Try)):
            parses = any(ast.unparse(node) == "json.loads" for part in block.body for node in ast.walk(part))
            caught = " ".join(ast.unparse(handler.type or block) for handler in block.handlers)
            if parses and "Error" in caught and "RecursionError" not in caught:
                lenient.append(f"{path.relative_to(ROOT)}:{block.lineno}")
    assert not lenient


# Rooms.


def test_every_folder_of_the_package_is_a_package():
    folders = {path.parent for path in (ROOT / "src").rglob("*.py")}
    assert not [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]


ALLOWED = {
    "numpy": "cloister.privacy",
    "scipy": "cloister.privacy",
    "cryptography": "cloister.privacy",
    "psycopg": "cloister.privacy.ledger",
    "dp_accounting": "cloister.privacy.accountant",
}


def test_the_core_imports_only_what_it_may():
    graph = grimp.build_graph("cloister", include_external_packages=True, cache_dir=None)
    core = {"cloister.privacy", *graph.find_descendants("cloister.privacy")}
    for module in core:
        for found in graph.find_modules_directly_imported_by(module):
            top = found.split(".")[0]
            if top != "cloister" and top not in sys.stdlib_module_names:
                assert top in ALLOWED, f"{module} imports {top}"
                assert f"{module}.".startswith(f"{ALLOWED[top]}."), f"{module} imports {top}"
