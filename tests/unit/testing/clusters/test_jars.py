"""Finding Java and the jars, and fetching them with a Maven that is only played."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kafka_keyshared.errors import ConfigError, MissingPartError
from kafka_keyshared.testing.clusters import jars

NAMES = ("kafka_2.13-4.1.1.jar", "kafka-tools-4.1.1.jar", "kafka-clients-4.1.1.jar")


def fill(directory: Path, names: tuple[str, ...] = NAMES) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("a jar")
    return directory


def command(directory: Path, name: str, body: str) -> Path:
    """Put an executable on the way that a search for ``name`` takes."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text(f"#!{sys.executable}\nimport sys, pathlib\n{body}\n")
    file.chmod(0o755)
    return file


def java_command(directory: Path, version: str, status: int = 0) -> Path:
    said = f'openjdk version "{version}" 2025-01-01'
    return command(directory, "java", f"print({said!r}, file=sys.stderr)\nsys.exit({status})")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without jars, Java and Maven; returns where the jars would be kept."""
    monkeypatch.delenv(jars.JARS_VARIABLE, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache" / "kafka-keyshared" / "kafka-4.1.1"


def test_the_pom_asks_for_the_version_that_the_cache_is_named_after() -> None:
    pom = Path(jars.__file__).with_name(f"kafka-{jars.KAFKA_VERSION}.pom.xml")
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = {
        dependency.findtext("m:artifactId", "", space): dependency.findtext("m:version", "", space)
        for dependency in ElementTree.parse(pom).iterfind(".//m:dependency", space)
    }
    assert found["kafka_2.13"] == found["kafka-tools"] == jars.KAFKA_VERSION
    assert "slf4j-simple" in found


def test_the_cache_counts_once_it_is_complete(cache: Path) -> None:
    assert jars.cache_directory() == cache
    assert jars.find_jars() is None
    fill(cache, NAMES[:2])
    assert jars.find_jars() is None
    with pytest.raises(
        MissingPartError, match=r"python -m kafka_keyshared\.testing\.clusters\.jars"
    ):
        jars.require_jars()
    fill(cache)
    assert jars.find_jars() == jars.require_jars() == jars.fetch_jars() == cache


def test_without_a_cache_variable_the_home_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_directory() == tmp_path / ".cache" / "kafka-keyshared" / "kafka-4.1.1"


def test_a_named_directory_goes_first_and_must_hold_the_jars(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cache)
    named = tmp_path / "libs"
    monkeypatch.setenv(jars.JARS_VARIABLE, str(named))
    with pytest.raises(ConfigError, match=f"{jars.JARS_VARIABLE}={named}"):
        jars.find_jars()
    fill(named)
    assert jars.find_jars() == named


def test_maven_is_named_when_it_is_missing() -> None:
    with pytest.raises(MissingPartError, match="install Maven") as caught:
        jars.fetch_jars()
    assert jars.JARS_VARIABLE in str(caught.value)


PLAYED_MAVEN = f"""
wanted = [word for word in sys.argv if word.startswith("-DoutputDirectory=")]
out = pathlib.Path(wanted[0].partition("=")[2])
pom = pathlib.Path(sys.argv[sys.argv.index("--file") + 1])
assert "kafka-tools" in pom.read_text()
out.mkdir()
for name in {NAMES!r}:
    (out / name).write_text("a jar")
"""


def test_maven_fills_the_cache_and_leaves_nothing_else(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path / "bin", "mvn", PLAYED_MAVEN)
    assert jars.KAFKA_JARS.fetch_and_tell() == 0
    assert capsys.readouterr().out == f"{cache}\n"
    assert sorted(file.name for file in cache.iterdir()) == sorted(NAMES)
    assert list(cache.parent.iterdir()) == [cache]


def test_a_half_emptied_cache_is_filled_again(cache: Path, tmp_path: Path) -> None:
    fill(cache, NAMES[:1])
    command(tmp_path / "bin", "mvn", PLAYED_MAVEN)
    assert jars.fetch_jars() == cache
    assert jars.find_jars() == cache


@pytest.mark.parametrize(
    "body",
    ["print('[ERROR] no route to the repository')\nsys.exit(1)", "print('[ERROR] no route to it')"],
    ids=["fails", "fetches nothing"],
)
def test_what_maven_says_is_passed_on(
    cache: Path, tmp_path: Path, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path / "bin", "mvn", body)
    assert jars.KAFKA_JARS.fetch_and_tell() == 1
    said = capsys.readouterr().err
    assert "no route to" in said
    assert "look at the network" in said
    assert list(cache.parent.iterdir()) == []


def test_of_two_fetches_the_first_stays(cache: Path, tmp_path: Path) -> None:
    first, second = fill(tmp_path / "first"), fill(tmp_path / "second")
    (first / "mark").write_text("first")
    cache.parent.mkdir(parents=True)
    jars.publish(first, cache)
    jars.publish(second, cache)
    assert (cache / "mark").read_text() == "first"
    assert second.exists()


def test_a_cache_that_cannot_be_written_is_named(cache: Path, tmp_path: Path) -> None:
    filled = fill(tmp_path / "filled")
    cache.parent.parent.mkdir(parents=True)
    cache.parent.write_text("a file where the directory should be")
    with pytest.raises(MissingPartError, match="could not be moved to"):
        jars.publish(filled, cache)


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)]
)
def test_versions_of_java_are_read(tmp_path: Path, version: str, feature: int) -> None:
    assert jars.java_version(str(java_command(tmp_path, version))) == feature


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert jars.java_version(str(tmp_path / "absent")) is None
    assert jars.java_version(str(java_command(tmp_path, "17", status=1))) is None


def test_the_home_of_java_goes_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = java_command(tmp_path / "bin", "17.0.1")
    at_home = java_command(tmp_path / "jdk" / "bin", "21.0.1")
    assert jars.java() == str(on_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert jars.java() == str(at_home)
    java_command(tmp_path / "jdk" / "bin", "11.0.1")
    assert jars.java() == str(on_path)


def test_a_missing_java_is_named_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingPartError, match="no java on PATH and JAVA_HOME is not set"):
        jars.java()
    java_command(tmp_path / "bin", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(MissingPartError, match="Java 17 or later") as caught:
        jars.java()
    said = str(caught.value)
    assert "gone/bin/java is no working Java" in said
    assert "bin/java is 11" in said
    assert "apt-get install openjdk-17-jre-headless" in said
