"""The wheel alone, in an empty environment outside the checkout: its contents, what it runs."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

import kafka_keyshared
from tests.support.cli import Ended, as_user

ROOT = Path(__file__).resolve().parents[2]
TYPED = Path(__file__).with_name("typed")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(autouse=True)
def no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away a PYTHONPATH that names the checkout: what is run would import that."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree, where nothing else of the checkout is."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    shutil.copytree(
        ROOT / "kafka_keyshared",
        source / "kafka_keyshared",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, source)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(place)]
    subprocess.run([*PIP, *build, str(source)], check=True, timeout=240)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """An environment with nothing of this checkout in it but the wheel, and beside it its needs."""
    home = wheel.parent / "venv"
    # Without pip in it, which Debian's Python cannot always put there.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    install = ["install", "--no-deps", "--no-index", str(wheel)]
    python = str(home / "bin" / "python")
    subprocess.run([*PIP, "--python", python, *install], check=True, timeout=240)
    # The requirements are taken from here, so that the test needs no network. A .pth file of theirs
    # is not read, so the editable install of this checkout stays invisible.
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = home / "lib" / version / "site-packages"
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def python(home: Path, *arguments: object, cwd: Path, env: Mapping[str, str] = {}) -> Ended:
    """Run the environment's Python somewhere outside the checkout."""
    return as_user(
        *arguments, command=[str(home / "bin" / "python")], cwd=cwd, env=env, timeout=600
    )


# --- what is in it ---


def test_everything_that_is_no_source_is_in_the_wheel(wheel: Path) -> None:
    tree = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "kafka_keyshared").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    of_the_package = {name for name in names if name.startswith("kafka_keyshared/")}
    assert of_the_package == tree
    assert "kafka_keyshared/py.typed" in of_the_package
    assert {name.split("/")[0] for name in names - of_the_package} == {
        f"kafka_keyshared-{kafka_keyshared.__version__}.dist-info"
    }


def test_all_that_the_console_loads_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        home = zipfile.Path(archive, "kafka_keyshared/observability/web/console/")
        asked = {
            *re.findall(r'(?:src|href)="([\w.][\w./]*)"', (home / "index.html").read_text("utf-8"))
        }
        modules = [each for each in archive.namelist() if "/web/console/" in each]
        for name in (each for each in modules if each.endswith(".js") and "/vendor/" not in each):
            folder = name.removeprefix(home.at).rpartition("/")[0]
            imported = re.findall(
                r'^import .* from "([\w./]+)";$', archive.read(name).decode(), re.M
            )
            asked |= {posixpath.normpath(posixpath.join(folder, each)) for each in imported}
        assert asked >= {"main.js", "style.css", "vendor/uPlot.iife.min.js", "screens/slots.js"}
        assert [each for each in asked if not (home / each).is_file()] == []
        assert (home / "vendor" / "uPlot.LICENSE").is_file()


def test_the_wheel_says_what_it_needs_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("/METADATA")]
        metadata = archive.read(name).decode("utf-8")
    needed = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE)
    assert sorted(needed) == [
        "confluent-kafka",
        "fastavro",
        "mmh3",
        "msgspec",
        "prometheus-client",
        "sortedcontainers",
    ]
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    assert {"cli", "testing"} <= extras
    assert wheel.stat().st_size < 5 << 20, "3.3 MB of it are the flights of the demo"


# --- what runs ---

IMPORT_ALL = """
import importlib, json, pkgutil
import kafka_keyshared, kafka_keyshared.testing

for module in (kafka_keyshared, kafka_keyshared.testing):
    for name in module.__all__:
        getattr(module, name)
names = [each.name for each in pkgutil.walk_packages(kafka_keyshared.__path__, "kafka_keyshared.")]
# Programs, and what needs packages that are no part of the install.
left_out = ("kafka_keyshared.cli.__main__", "kafka_keyshared.lab.demo.make_data")
for name in names:
    if name not in left_out:
        importlib.import_module(name)
print(json.dumps([kafka_keyshared.__file__, len(names)]))
"""


def test_every_public_name_and_every_module_can_be_imported(
    installed: Path, tmp_path: Path
) -> None:
    ended = python(installed, "-W", "error", "-c", IMPORT_ALL, cwd=tmp_path)
    assert ended.status == 0, ended.err
    where, modules = json.loads(ended.out)
    assert where.startswith(str(installed))
    assert modules > 80


def test_an_installed_wheel_runs_the_whole_year(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin" / "keyshared")]
    ended = as_user("demo", "--json", command=command, cwd=tmp_path, timeout=400)
    assert ended.status == 0, ended.err
    assert len(ended.out.splitlines()) == 1
    result = json.loads(ended.out)
    expected = {
        "records": 362_891,
        "flights": 336_776,
        "weather": 26_115,
        "keyless": 28_627,
        "dead_lettered": 8_255,
        "order_violations": 0,
        "lost": 0,
        "duplicates": 0,
        "overlaps": 0,
        "commits_past_unsettled": 0,
        "oracle_match": True,
    }
    assert result | expected == result
    assert result["elapsed_s"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("kafka_parts")
def test_an_installed_wheel_measures_the_empty_handler(installed: Path, tmp_path: Path) -> None:
    noop = ("bench", "noop", "--json", "--records", 20_000, "--repeat", 1)
    ended = python(installed, "-m", "kafka_keyshared.cli", *noop, cwd=tmp_path)
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    assert (result["records"], result["failed_attempts"]) == (20_000, 0)
    assert result["ratio"] > 0
    assert list(tmp_path.iterdir()) == []


def test_what_init_writes_passes_its_own_test_there(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin" / "keyshared")]
    ended = as_user("init", "mine", "-t", "orders", command=command, cwd=tmp_path)
    assert ended.status == 0, ended.err
    made = tmp_path / "mine"
    ended = python(installed, "-m", "pytest", "-W", "error", "-q", cwd=made)
    assert ended.status == 0, ended.out + ended.err
    assert "2 passed" in ended.out


def test_without_the_extra_the_command_says_what_to_install(
    installed: Path, tmp_path: Path
) -> None:
    for name in ("typer", "rich"):
        (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError(name=__name__)\n")
    env = {"PYTHONPATH": str(tmp_path)}
    ended = python(installed, "-m", "kafka_keyshared.cli", "demo", cwd=tmp_path, env=env)
    assert ended.status == 2
    assert "kafka-keyshared[cli]" in ended.err
    assert "Traceback" not in ended.err


# --- what type checkers see of it ---


def mypy(home: Path, directory: Path, *files: str) -> tuple[set[tuple[str, int]], str]:
    """Return the places that mypy finds wrong, with all it says."""
    settings = ["--strict", "--no-error-summary", "--hide-error-context", "--no-color-output"]
    cache = ["--cache-dir", str(home / "mypy")]
    there = ["--python-executable", str(home / "bin" / "python")]
    command = [sys.executable, "-m", "mypy", "--config-file", "", *settings, *cache, *there]
    ended = as_user(*files, command=command, cwd=directory, timeout=600)
    assert ended.status in (0, 1), ended.out + ended.err
    found = re.findall(r"^(\S+?):(\d+): error:", ended.out, re.MULTILINE)
    return {(name, int(line)) for name, line in found}, ended.out


def pyright(home: Path, directory: Path, *files: str) -> tuple[set[tuple[str, int]], str]:
    """Return the places that pyright finds wrong, with all it says."""
    # --outputjson also keeps it from looking for a newer version of itself.
    command = [sys.executable, "-m", "pyright", "--outputjson", "--level", "error"]
    there = ["--pythonpath", str(home / "bin" / "python")]
    ended = as_user(*there, *files, command=command, cwd=directory, timeout=600)
    assert ended.status in (0, 1), ended.out + ended.err
    found = json.loads(ended.out)["generalDiagnostics"]
    places = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found}
    return places, "\n".join(f"{each['range']['start']['line'] + 1}: {each}" for each in found)


Checker: TypeAlias = Callable[..., tuple[set[tuple[str, int]], str]]
CHECKERS = pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda each: each.__name__)


@pytest.fixture
def users_files(tmp_path: Path) -> Path:
    """The files of a user, somewhere outside the checkout."""
    for folder in (TYPED, ROOT / "examples" / "testing"):
        for path in folder.glob("*.py"):
            shutil.copy(path, tmp_path)
    return tmp_path


@CHECKERS
def test_type_hints_accept_what_is_right_and_report_each_mistake(
    installed: Path, users_files: Path, checker: Checker
) -> None:
    text = (users_files / "wrong.py").read_text("utf-8").splitlines()
    wrong = {("wrong.py", n) for n, line in enumerate(text, 1) if line.endswith("# wrong")}
    assert len(wrong) > 25
    files = ("right.py", "wrong.py", "app.py", "conftest.py", "test_app.py")
    found, said = checker(installed, users_files, *files)
    assert found == wrong, f"only one of both: {sorted(found ^ wrong)}\n{said}"


@CHECKERS
def test_a_name_that_is_not_there_is_reported(
    installed: Path, tmp_path: Path, checker: Checker
) -> None:
    (tmp_path / "typo.py").write_text("from kafka_keyshared import KeyShard\n", "utf-8")
    found, said = checker(installed, tmp_path, "typo.py")
    assert found == {("typo.py", 1)}, said


@CHECKERS
def test_the_checkers_look_at_the_installed_package(
    installed: Path, tmp_path: Path, checker: Checker
) -> None:
    """And not at the checkout, where there is no such module."""
    (package,) = installed.glob("lib/*/site-packages/kafka_keyshared")
    (package / "marked.py").write_text("HERE: int = 1\n", "utf-8")
    text = "from kafka_keyshared.marked import HERE\n\nhere: str = HERE\n"
    (tmp_path / "looks.py").write_text(text, "utf-8")
    found, said = checker(installed, tmp_path, "looks.py")
    assert found == {("looks.py", 3)}, said
