"""The build files agree with each other, and the set-up scripts choose well."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.setup import make_venv, parts
from tests.tidy.sources import ROOT

PIN = re.compile(r"([A-Za-z0-9._-]+)==(\d[^\s;]*)")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), "constraints.txt holds a line that is no exact version"
    return {normal(match[1]): match[2] for match in found if match}


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return table


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_requirement_has_an_exact_version() -> None:
    table = project()
    wanted = [*table["build-system"]["requires"], *table["project"]["dependencies"]]
    for extra in table["project"]["optional-dependencies"].values():
        wanted += extra
    names = {normal(re.split(r"[<>=!~ \[]", requirement)[0]) for requirement in wanted}
    assert names <= pins().keys()


def test_every_pip_call_that_installs_is_held_to_the_constraints() -> None:
    installs = [line for line in makefile().splitlines() if "$(PIP) install" in line]
    assert installs
    assert all("--constraint constraints.txt" in line for line in installs)


def test_nothing_is_built_in_isolation_because_that_needs_the_network_every_time() -> None:
    builds = [line for line in makefile().splitlines() if "--editable" in line or " wheel " in line]
    builds = [line for line in builds if "$(PIP)" in line]
    assert len(builds) == 3
    assert all("--no-build-isolation" in line for line in builds)


def test_help_names_every_task_that_the_makefile_declares() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", makefile(), re.MULTILINE)
    shown = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    tasks = {line.split()[1] for line in shown.splitlines()}
    assert phony
    assert tasks == set(phony[1].split()) - {"parts"}
    assert all(len(line.split()) > 2 for line in shown.splitlines())


def test_the_build_server_runs_make_test_and_nothing_else() -> None:
    run = ROOT / ".ci" / "run"
    lines = run.read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set "))]
    assert os.access(run, os.X_OK)
    assert commands == ['cd "$(dirname "$0")/.."', "exec make test"]


def test_an_environment_that_works_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_venv, "works", lambda venv: True)
    monkeypatch.setattr(make_venv, "makers", lambda venv: pytest.fail("made it again"))
    assert make_venv.main([".venv"]) == 0


def test_venv_comes_before_uv_and_uv_before_virtualenv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_venv, "makes_venv", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    commands = make_venv.makers(Path(".venv"))
    assert [command[0] for command in commands] == [sys.executable, "uv", "virtualenv"]
    assert all(command[-1] == ".venv" for command in commands)
    monkeypatch.setattr(make_venv, "makes_venv", lambda: False)
    assert [command[0] for command in make_venv.makers(Path(".venv"))] == ["uv", "virtualenv"]


def test_a_machine_that_cannot_make_one_is_told_the_one_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(make_venv, "makers", lambda venv: [])
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert make_venv.main([str(tmp_path / "venv")]) == 2
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"install the package python{version}-venv" in capsys.readouterr().err


def test_a_broken_environment_does_not_work(tmp_path: Path) -> None:
    assert not make_venv.works(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / "bin" / "python").chmod(0o755)
    assert not make_venv.works(tmp_path)


@pytest.mark.parametrize(("ci", "root"), [("", 0), ("false", 0), ("true", 1000)])
def test_apt_is_used_only_by_root_on_a_build_server(
    monkeypatch: pytest.MonkeyPatch, ci: str, root: int
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("CI", "true")
    assert make_venv.may_use_apt()
    monkeypatch.setattr(os, "geteuid", lambda: root)
    monkeypatch.setenv("CI", ci)
    assert not make_venv.may_use_apt()


def test_the_answer_to_the_makefile_is_about_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_venv.main(["--usable"]) == 0
    monkeypatch.setattr(sys, "version_info", (3, 10, 0, "final", 0))
    assert make_venv.main(["--usable"]) == 1
    assert make_venv.main(["--makes-venv"]) == 1


def test_a_suite_exists_when_its_folder_holds_a_test(tmp_path: Path) -> None:
    for name in ("chaos/test_a.py", "unit/deep/test_b.py", "web/helper.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    assert parts.existing_suites(tmp_path) == ["chaos", "unit"]


def test_a_part_is_looked_for_once_and_only_if_a_suite_needs_it() -> None:
    assert parts.needed(["unit", "tidy"]) == []
    assert parts.needed(["chaos", "conformance"]) == [parts.JAVA, parts.MAVEN]
    assert parts.needed(["benchmarks", "integration"]) == [*parts.KAFKA, *parts.PEER]
    assert parts.needed(["spark"]) == [*parts.KAFKA, *parts.SPARK]
    assert set(parts.SUITES) <= set(project()["tool"]["keyshared"]["budgets"])


def test_missing_parts_are_named_all_at_once_with_one_command_for_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = parts.Part("A browser", lambda: False, "chromium")
    here = parts.Part("A shell", lambda: True, "dash")
    lost = parts.Part("A compiler", lambda: False, "golang-go")
    monkeypatch.setattr(parts, "may_use_apt", lambda: False)
    assert parts.get([gone, here, lost]) == [gone, lost]
    assert capsys.readouterr().err.splitlines() == [
        "A browser is missing: install the package chromium",
        "A compiler is missing: install the package golang-go",
        "On Debian and Ubuntu: sudo apt-get install chromium golang-go",
    ]


def test_what_is_missing_is_named_before_anything_runs() -> None:
    (line,) = [line for line in makefile().splitlines() if line.startswith("test:")]
    assert line.split("##")[0].split()[1] == "parts"


def test_a_part_that_apt_brought_is_no_longer_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []

    def apt(packages: list[str]) -> bool:
        installed.extend(packages)
        return True

    monkeypatch.setattr(parts, "may_use_apt", lambda: True)
    monkeypatch.setattr(parts, "apt_install", apt)
    part = parts.Part("A browser", lambda: "chromium" in installed, "chromium")
    assert parts.get([part]) == []
    assert installed == ["chromium"]


def fetched_for(suite: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list to which is added what is fetched, from here on, when this is the one suite."""
    fetched: list[str] = []

    def fetch(module: str = parts.KAFKA_JARS) -> bool:
        fetched.append(module)
        return True

    monkeypatch.delenv("KEYSHARED_TEST_BOOTSTRAP", raising=False)
    monkeypatch.setattr(parts, "existing_suites", lambda tests: [suite])
    monkeypatch.setattr(parts, "get", lambda wanted: [])
    monkeypatch.setattr(parts, "fetch_jars", fetch)
    monkeypatch.setattr(parts, "archive_classes", lambda: None)
    return fetched


@pytest.mark.parametrize(
    ("suite", "extra", "jars"),
    [("benchmarks", "peers", parts.PEER_JARS), ("spark", "spark", parts.SPARK_JARS)],
)
def test_what_a_suite_needs_is_installed_and_fetched(
    suite: str, extra: str, jars: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [line for line in makefile().splitlines() if "--editable" in line and "test]" in line]
    assert extra in line.partition("[")[2]
    fetched = fetched_for(suite, monkeypatch)
    assert parts.main(["suites"]) == 0
    assert fetched == [parts.KAFKA_JARS, jars]


def test_without_maven_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = fetched_for("spark", monkeypatch)
    monkeypatch.setattr(parts, "get", lambda wanted: [parts.SPARK_MAVEN, parts.MAVEN])
    assert parts.main(["suites"]) == 0
    assert fetched == []


RUN = re.compile(r"""-m['"]?,?\s+['"]?((?:kafka_keyshared|tests)(?:\.\w+)+)""")


def run_modules() -> dict[str, str]:
    """By the name of each module that a file runs with ``-m``: that file."""
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = dict.fromkeys((parts.KAFKA_JARS, parts.SPARK_JARS, parts.PEER_JARS), "parts.py")
    for name in listed.stdout.split():
        if name.endswith((".py", ".md", ".toml", ".yml", ".yaml")) or name == "Makefile":
            found |= dict.fromkeys(RUN.findall((ROOT / name).read_text(encoding="utf-8")), name)
    return found


def test_each_module_that_is_run_by_name_can_be_run() -> None:
    modules = run_modules()
    assert len(modules) > 10
    for module, file in modules.items():
        path = ROOT.joinpath(*module.split("."))
        source = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        assert source.is_file(), f"{file} runs {module}, which does not exist"
        runs = source.name == "__main__.py" or "__main__" in source.read_text(encoding="utf-8")
        assert runs, f"{file} runs {module}, which does nothing when it is run"
