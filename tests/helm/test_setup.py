"""helm is built once, and whoever cannot build it is told what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.setup import helm, parts


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without helm and Go."""
    monkeypatch.delenv(helm.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


def test_it_is_built_once_outside_of_the_checkout(nowhere: Path) -> None:
    log = nowhere / "log"
    program(
        nowhere / "bin" / "go",
        f'echo "$@" >> {log}; echo "#!/bin/sh" > "$GOBIN/helm"; /bin/chmod 755 "$GOBIN/helm"',
    )
    assert helm.find_helm() is None
    built = helm.build_helm()
    assert built == nowhere / "cache" / "kafka-keyshared" / f"helm-{helm.VERSION}" / "helm"
    assert helm.build_helm() == helm.find_helm() == built
    assert log.read_text("utf-8").splitlines() == [f"install -ldflags=-s -w {helm.MODULE}"]
    assert list(built.parent.parent.iterdir()) == [built.parent]


def test_without_go_the_reader_is_told_what_to_install(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not parts.GO.present()
    assert not parts.fetch_helm()
    said = capsys.readouterr().err
    assert f"there is no helm {helm.VERSION} and no Go to build it" in said
    assert "install Go" in said


def test_a_build_that_fails_says_what_go_said(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(nowhere / "bin" / "go", "echo no such module >&2; exit 1")
    assert not parts.fetch_helm()
    said = capsys.readouterr().err
    assert "Go could not build helm" in said
    assert said.endswith("no such module\n")
    assert not helm.cached().exists()


def test_a_helm_that_is_named_is_used_and_a_wrong_name_is_not_passed_over(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(nowhere / "helm", "exit 0")
    monkeypatch.setenv(helm.VARIABLE, str(nowhere / "helm"))
    assert parts.GO.present()
    assert helm.build_helm() == nowhere / "helm"
    monkeypatch.setenv(helm.VARIABLE, str(nowhere / "no-helm"))
    assert helm.find_helm() is None
    with pytest.raises(helm.HelmMissingError, match="names no program: correct it or unset it"):
        helm.build_helm()
