"""Conversion of spark-submit arguments to Spark settings.

A command line that works on a user's cluster can thus be passed on unchanged, including all
settings for Kubernetes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from kafka_keyshared.errors import ConfigError

_SETTINGS: Mapping[str, str] = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
    "--exclude-packages": "spark.jars.excludes",
    "--jars": "spark.jars",
    "--files": "spark.files",
    "--archives": "spark.archives",
    "--py-files": "spark.submit.pyFiles",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
    "--num-executors": "spark.executor.instances",
    "--queue": "spark.yarn.queue",
    "--principal": "spark.kerberos.principal",
    "--keytab": "spark.kerberos.keytab",
}
JOINED = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")
"""Settings that are lists; a given value is appended to the existing one."""


def settings_of(arguments: str) -> dict[str, str]:
    """Return the settings for a line of spark-submit arguments.

    Raises :class:`ConfigError` for an argument that is unknown, has no meaning here, or lacks its
    value.
    """
    try:
        words = iter(shlex.split(arguments))
    except ValueError as error:
        raise ConfigError(f"--submit-args {arguments!r}: {error}; close the quotation") from error
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            value = next(words, "")
        if name in {"--conf", "-c"}:
            name, equals, value = value.partition("=")
            if not equals:
                raise ConfigError(f"--submit-args: --conf {name}: give KEY=VALUE")
        elif name == "--deploy-mode":
            _refuse_cluster_mode(value)
            continue
        elif name in _SETTINGS:
            if not value:
                raise ConfigError(f"--submit-args: {name} has no value")
            name = _SETTINGS[name]
        else:
            known = ", ".join(["--conf", *_SETTINGS])
            raise ConfigError(f"--submit-args: {name!r} cannot be passed on; there are {known}")
        found[name] = joined(name, found.get(name, ""), value)
    return found


def joined(name: str, before: str, value: str) -> str:
    """Return a setting's value, appended to the previous value if the setting is a list."""
    return f"{before},{value}" if before and name in JOINED else value


def _refuse_cluster_mode(mode: str) -> None:
    if mode != "client":
        raise ConfigError(
            f"--submit-args: --deploy-mode {mode}: this process is the driver, so it is client; "
            "for a driver inside the cluster call spark-submit itself with "
            "kafka_keyshared/cli/__main__.py and the arguments of `keyshared`"
        )
