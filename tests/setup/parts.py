"""Get the parts of the test suites that pip cannot install, or say how to get them.

``python tests/setup/parts.py suites`` looks at the suites that exist under ``tests/`` and gets what
they need: Kafka's own jars and Spark's for it through Maven, helm through Go, and under ``CI=true``
as root the system packages below them. ``… parts.py kafka`` gets the same for one purpose and fails
when it cannot.

Exit status: 0, or 2 when ``kafka`` was asked for and a part is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup import helm
from tests.setup.make_venv import apt_install, may_use_apt

# Modules that fetch jars when they are run.
KAFKA_JARS = "kafka_keyshared.testing.clusters.jars"
SPARK_JARS = "kafka_keyshared.spark.jars"
PEER_JARS = "kafka_keyshared.lab.bench.jars"


class Part(NamedTuple):
    """Something outside Python: how to see that it is there, and the Debian package with it."""

    name: str
    present: Callable[[], bool]
    package: str


def find_chromium() -> str | None:
    """Return the path of a browser that can be driven; None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def _java_works() -> bool:
    from kafka_keyshared.errors import MissingPartError
    from kafka_keyshared.testing.clusters.jars import java

    try:
        java()
    except MissingPartError:
        return False
    return True


def _jars_reachable() -> bool:
    from kafka_keyshared.testing.clusters.jars import find_jars

    return find_jars() is not None or shutil.which("mvn") is not None


def _spark_java_works() -> bool:
    from kafka_keyshared.errors import MissingPartError
    from kafka_keyshared.spark.checks import java_of_spark

    try:
        java_of_spark()
    except MissingPartError:
        return False
    return True


def _peer_compiles() -> bool:
    from kafka_keyshared.errors import MissingPartError
    from kafka_keyshared.lab.bench.jars import compiler

    try:
        compiler()
    except MissingPartError:
        return False
    return True


def _peer_jars_reachable() -> bool:
    from kafka_keyshared.lab.bench import jars

    return jars.PEER_JARS.find() is not None or shutil.which("mvn") is not None


def _spark_jars_reachable() -> bool:
    from kafka_keyshared.spark import jars

    return jars.SPARK_JARS.find() is not None or shutil.which("mvn") is not None


JAVA = Part("Java 17 or newer", _java_works, "default-jre-headless")
MAVEN = Part("Maven (it fetches Kafka's jars once)", _jars_reachable, "maven")
SPARK_JAVA = Part(
    "Java 17 to 22 (Spark runs on no other)", _spark_java_works, "openjdk-17-jre-headless"
)
SPARK_MAVEN = Part("Maven (it fetches Spark's jars for Kafka once)", _spark_jars_reachable, "maven")
JAVAC = Part("a Java compiler (for a Java peer)", _peer_compiles, "default-jdk-headless")
PEER_MAVEN = Part("Maven (it fetches that peer's jars once)", _peer_jars_reachable, "maven")
PROMTOOL = Part(
    "promtool (it checks the metrics)", lambda: shutil.which("promtool") is not None, "prometheus"
)
CHROMIUM = Part(
    "Chromium (it shows the documents)", lambda: find_chromium() is not None, "chromium"
)
GO = Part(
    "Go 1.21 or newer (it builds helm once)",
    lambda: helm.find_helm() is not None or shutil.which("go") is not None,
    "golang-go",
)
KAFKA = (JAVA, MAVEN)
SPARK = (SPARK_JAVA, SPARK_MAVEN)
PEER = (JAVAC, PEER_MAVEN)

# What each suite needs. A suite that is not named here needs Python alone.
SUITES: dict[str, tuple[Part, ...]] = {
    "conformance": KAFKA,
    "integration": (*KAFKA, *PEER),
    "chaos": KAFKA,
    "spark": (*KAFKA, *SPARK),
    "benchmarks": (*KAFKA, *PEER),
    "web": (PROMTOOL, CHROMIUM),
    "helm": (GO,),
}


def existing_suites(tests: Path) -> list[str]:
    """The folders under ``tests`` that hold a test file."""
    return sorted(
        folder.name
        for folder in tests.iterdir()
        if folder.is_dir() and any(folder.rglob("test_*.py"))
    )


def needed(suites: Iterable[str]) -> list[Part]:
    """Every part that one of the suites needs, each once, in the order of the tables."""
    return list(dict.fromkeys(part for suite in suites for part in SUITES.get(suite, ())))


def absent(parts: Iterable[Part]) -> list[Part]:
    """The parts that are not here."""
    return [part for part in parts if not part.present()]


def get(parts: Sequence[Part]) -> list[Part]:
    """Install what may be installed; the parts that are still missing, each named on stderr."""
    missing = absent(parts)
    if missing and may_use_apt():
        apt_install([part.package for part in missing])
        missing = absent(missing)
    if missing:
        print(told(missing), file=sys.stderr)
    return missing


def told(missing: Sequence[Part]) -> str:
    """Return a line for each part that is missing, and the command that installs them all."""
    lines = [f"{part.name} is missing: install the package {part.package}" for part in missing]
    packages = " ".join(dict.fromkeys(part.package for part in missing))
    return "\n".join([*lines, f"On Debian and Ubuntu: sudo apt-get install {packages}"])


def fetch_jars(module: str = KAFKA_JARS) -> bool:
    """Run the module that fetches jars unless they are there; return whether it succeeded."""
    command = [sys.executable, "-m", module]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def archive_classes() -> None:
    """Make the archive of Spark's classes unless it is there; without it tests are only slower."""
    subprocess.run([sys.executable, "-m", "tests.setup.spark_classes"], check=False)


def fetch_helm() -> bool:
    """Build helm unless it is in the cache; False, and the reason on stderr, when Go could not."""
    try:
        helm.build_helm()
    except helm.HelmMissingError as missing:
        print(missing, file=sys.stderr)
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    """Serve ``make test`` (``suites``) and ``make kafka`` (``kafka``)."""
    if list(arguments) == ["kafka"]:
        return 0 if not get(KAFKA) and fetch_jars() else 2
    if list(arguments) != ["suites"]:
        print("usage: python tests/setup/parts.py suites|kafka", file=sys.stderr)
        return 2
    parts = needed(existing_suites(Path("tests")))
    elsewhere = "KEYSHARED_TEST_BOOTSTRAP" in os.environ
    if elsewhere:
        parts = [part for part in parts if part not in KAFKA]
    missing = set(get(parts))
    # What fails here is told by Maven and Go themselves, and again by the tests that need it.
    if set(parts) & set(KAFKA) and not missing & set(KAFKA):
        fetch_jars()
    if SPARK_MAVEN in parts and SPARK_MAVEN not in missing and fetch_jars(SPARK_JARS):
        archive_classes()
    if PEER_MAVEN in parts and PEER_MAVEN not in missing:
        fetch_jars(PEER_JARS)
    if GO in parts and GO not in missing:
        fetch_helm()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
