"""What does not fit together is told before Spark starts, with a Java and a Spark only played."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.spark import checks, jars
from kafka_keyshared.spark.checks import Misfit, SparkMismatch
from tests.support.spark_parts import CONNECTOR, JARS, Machine, command, fill, java_command


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def only(master: str = "local[*]", **conf: str) -> Misfit:
    (found,) = checks.misfits(master, {name.replace("_", "."): conf[name] for name in conf})
    return found


def test_where_everything_fits_there_is_nothing_to_say(machine: Machine) -> None:
    assert list(checks.misfits()) == []
    checks.require("local[*]", {})
    assert checks.seen() == (
        f"Spark 4.0.0, Java 17 ({machine.root}/java/bin/java), jars in {machine.cache}"
    )


@pytest.mark.parametrize("name", ["pyspark", "pyarrow", "pandas"])
def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda asked: None if asked == name else object())
    with pytest.raises(MissingPartError, match=r"kafka-keyshared\[spark\]") as caught:
        checks.require_pyspark()
    assert str(caught.value).startswith(f"{name} is not installed")


def test_another_pyspark_is_refused_with_the_one_to_install(machine: Machine) -> None:
    machine.installed("3.5.6")
    found = only()
    assert found.part is SparkMismatch.SPARK
    assert found.why.startswith("pyspark 3.5.6 is installed")
    assert found.cure == "pip install 'pyspark==4.0.*'"


def test_a_later_4_0_is_taken(machine: Machine) -> None:
    machine.installed("4.0.1")
    (machine.home / "jars" / "spark-core_2.13-4.0.0.jar").unlink()
    fill(machine.home / "jars", "spark-core_2.13-4.0.1.jar")
    assert list(checks.misfits()) == []


@pytest.mark.parametrize(
    ("there", "which"), [("spark-core_2.12-3.5.6.jar", "Spark 3.5.6"), (None, "no Spark")]
)
def test_a_spark_home_with_another_spark_is_named(
    machine: Machine, there: str | None, which: str
) -> None:
    other = fill(machine.root / "other" / "jars", *([there] if there else []))
    machine.monkeypatch.setenv("SPARK_HOME", str(other.parent))
    found = next(checks.misfits())
    assert found.part is SparkMismatch.SPARK
    assert found.why.endswith(f"start {other.parent}, which is {which}")
    assert "unset SPARK_HOME" in found.cure


@pytest.mark.parametrize(
    ("version", "told"),
    [("11.0.2", "is 11"), ("23.0.1", "Java 17 to 22 ("), ("25", "is 25"), (None, "no java")],
)
def test_a_java_that_spark_does_not_run_on_is_named(
    machine: Machine, version: str | None, told: str
) -> None:
    if version is None:
        machine.monkeypatch.delenv("JAVA_HOME")
    else:
        java_command(machine.root / "java", version)
    found = only()
    assert found.part is SparkMismatch.JAVA
    assert found.why.startswith("Spark ")
    assert told in found.why
    assert "JAVA_HOME" in found.cure


def test_missing_jars_are_named_with_the_way_to_get_them(machine: Machine) -> None:
    (machine.cache / CONNECTOR).unlink()
    found = only()
    assert found.part is SparkMismatch.JARS
    assert str(machine.cache) in found.why
    assert "keyshared spark jars --fetch" in found.cure
    assert jars.JARS_VARIABLE in found.cure


def test_a_named_directory_without_the_jars_is_named(machine: Machine) -> None:
    machine.monkeypatch.setenv(jars.JARS_VARIABLE, str(machine.root))
    found = only()
    assert found.part is SparkMismatch.JARS
    assert f"{jars.JARS_VARIABLE}={machine.root}" in found.why


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("spark-sql-kafka-0-10_2.13-3.5.6.jar", "is for Spark 3.5.6, and this is 4.0.0"),
        ("spark-sql-kafka-0-10_2.12-4.0.0.jar", "is for Scala 2.12, and this Spark is of 2.13"),
    ],
)
def test_jars_for_another_spark_or_scala_are_named(machine: Machine, name: str, told: str) -> None:
    (machine.cache / CONNECTOR).unlink()
    fill(machine.cache, name)
    found = only()
    assert found.part is SparkMismatch.JARS
    assert found.why == f"{machine.cache / name} {told}"


def test_two_versions_of_a_jar_are_named(machine: Machine) -> None:
    fill(machine.cache, "kafka-clients-3.8.0.jar")
    found = only()
    assert found.part is SparkMismatch.JARS
    assert "kafka-clients-3.8.0.jar and kafka-clients-3.9.0.jar are both in" in found.why


def test_another_python_for_executors_is_named(machine: Machine) -> None:
    other = command(machine.root / "other-python", "print('3.9')")
    found = only(spark_pyspark_python=str(other))
    assert found.part is SparkMismatch.PYTHON
    assert f"{other}, is 3.9, and this one is {sys.version_info[0]}." in found.why
    machine.monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    assert only("spark://somewhere:7077").part is SparkMismatch.PYTHON


def test_a_python_that_is_not_here_matters_only_where_all_is_here(machine: Machine) -> None:
    absent = str(machine.root / "absent")
    assert "does not run" in only(spark_pyspark_python=absent).why
    assert list(checks.misfits("k8s://there", {"spark.pyspark.python": absent})) == []
    assert list(checks.misfits("local[*]", {"spark.pyspark.python": "./env/bin/python"})) == []


def test_all_that_does_not_fit_is_told_in_one_line(machine: Machine) -> None:
    machine.monkeypatch.delenv("JAVA_HOME")
    (machine.cache / CONNECTOR).unlink()
    with pytest.raises(MissingPartError) as caught:
        checks.require("local[*]", {})
    said = str(caught.value)
    assert "\n" not in said
    assert "needs Java" in said
    assert "spark jars --fetch" in said


def test_the_pom_asks_for_one_spark_and_leaves_out_what_spark_has() -> None:
    pom = Path(jars.__file__).with_name(jars.SPARK_JARS.pom)
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    every = ElementTree.parse(pom).findall(".//m:dependency", space)
    found = {
        each.findtext("m:artifactId", "", space): each.findtext("m:version", "", space)
        for each in every
    }
    connector = f"spark-sql-kafka-0-10_{jars.SCALA_VERSION}"
    token = f"spark-token-provider-kafka-0-10_{jars.SCALA_VERSION}"
    assert found[connector] == found[token] == jars.SPARK_VERSION
    assert len(found) == len(jars.SPARK_JARS.needed)
    assert all(each.findtext(".//m:exclusion/m:artifactId", "", space) == "*" for each in every)


def test_only_the_jars_that_are_needed_are_given_to_spark(machine: Machine) -> None:
    fill(machine.cache, "scala-library-2.13.16.jar")
    assert [file.name for file in jars.needed_files()] == list(JARS)
