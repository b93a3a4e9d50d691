"""Delivery of this package, the handler's modules and environments to executors.

A module travels in a zip, from which Python imports directly. Compiled modules cannot be imported
from a zip. Therefore mmh3, msgspec and pyarrow must be installed, or come in an environment
archive.
"""

from __future__ import annotations

import queue
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kafka_keyshared.errors import ConfigError

PACKAGE = "kafka_keyshared"
ENVIRONMENT = "environment"
"""Name of an environment archive: with ``--archives FILE#environment``, executors run its Python.
"""
NEEDED = ("pyarrow", "pandas", "mmh3", "msgspec", "sortedcontainers", "kafka_keyshared.hashing")
"""Modules that every executor must be able to import."""
PATIENCE = 180.0
"""Seconds until executors must accept their first work; a cluster may have to start machines."""


def package_zip(directory: Path) -> Path:
    """Write this package into ``directory`` as it is installed here; return the file."""
    root = Path(__file__).parents[1]
    files = {
        f"{PACKAGE}/{file.relative_to(root).as_posix()}": file
        for file in sorted(root.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    return _zip(directory / f"{PACKAGE}.zip", files)


def modules_zip(directory: Path, modules: Iterable[ModuleType], name: str = "handlers") -> Path:
    """Write the source of modules into ``directory``, under their import paths; return the file.

    Raises :class:`ConfigError` for a module without source.
    """
    files: dict[str, Path] = {}
    for module in modules:
        file = getattr(module, "__file__", None)
        if file is None or not file.endswith(".py"):
            raise ConfigError(
                f"module {module.__name__} has no source that could be sent to executors; install "
                "it there, or send an archive of the environment"
            )
        place = module.__name__.replace(".", "/")
        files[f"{place}/__init__.py" if hasattr(module, "__path__") else f"{place}.py"] = Path(file)
    return _zip(directory / f"{name}.zip", files)


def modules_below(directory: Path) -> list[ModuleType]:
    """Return the modules imported so far from files below ``directory``.

    Installed modules and this package are excluded.
    """
    root = directory.resolve()
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] not in {PACKAGE, "__main__"}
        and (file := getattr(module, "__file__", None)) is not None
        and file.endswith(".py")
        and Path(file).resolve().is_relative_to(root)
        and "site-packages" not in Path(file).resolve().relative_to(root).parts
    ]


def _zip(target: Path, files: Mapping[str, Path]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, file in files.items():
            archive.write(file, place)
    return target


def python_in(archives: Iterable[str]) -> str | None:
    """Return the Python of an environment archive; None when there is no such archive."""
    unpacked = {archive.partition("#")[2] for archive in archives}
    return f"./{ENVIRONMENT}/bin/python" if ENVIRONMENT in unpacked else None


def without_java() -> None:
    """Remove Spark's own jar, which has no Python modules, from ``sys.path``.

    Spark adds it, and pyspark reads the directory of every archive again before each task. With its
    five thousand entries that takes 0.05 to 0.15 s of processor time.
    """
    for place in [each for each in sys.path if Path(each).name.startswith("spark-core_")]:
        sys.path.remove(place)
        sys.path_importer_cache.pop(place, None)


class ExecutorReport(NamedTuple):
    """The answer of one executor."""

    host: str
    python: str
    version: tuple[int, int]
    missing: tuple[str, ...]


def look_around(modules: tuple[str, ...]) -> ExecutorReport:
    """Return this host, its Python, and the ``modules`` that fail to import, with the reason."""
    import importlib
    import socket

    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - any error of a module is reported
            missing.append(f"{name} ({type(error).__name__}: {error})")
    version = (sys.version_info[0], sys.version_info[1])
    return ExecutorReport(socket.gethostname(), sys.executable, version, tuple(missing))


def probe(
    context: Any, modules: tuple[str, ...] = (), patience: float = PATIENCE
) -> list[ExecutorReport]:
    """Make executors import their required modules and ``modules``; return their answers.

    Raises :class:`ConfigError` when an import fails, or when no executor takes work within
    ``patience`` seconds. It does so before anything is read, and the error says how to fix it.
    """
    wanted = (*NEEDED, *modules)
    found = _within(patience, context, wanted)
    for each in found:
        if each.missing:
            raise ConfigError(
                f"an executor on {each.host} ({each.python}) cannot import "
                f"{'; '.join(each.missing)}: install it there, or send an archive of an "
                f"environment that has it (--archives FILE#{ENVIRONMENT})"
            )
    return found


def _within(patience: float, context: Any, modules: tuple[str, ...]) -> list[ExecutorReport]:
    answers: queue.Queue[list[ExecutorReport] | Exception] = queue.Queue()
    count = max(2, context.defaultParallelism)

    def look(_: Iterable[int]) -> Iterator[ExecutorReport]:
        yield look_around(modules)

    def ask() -> None:
        try:
            answers.put(context.parallelize(range(count), count).mapPartitions(look).collect())
        except Exception as error:  # noqa: BLE001 - it is raised again below
            answers.put(error)

    threading.Thread(target=ask, name="keyshared-spark-probe", daemon=True).start()
    try:
        answer = answers.get(timeout=patience)
    except queue.Empty:
        raise ConfigError(
            f"no executor has taken work within {patience:.0f} s: see that the cluster has room "
            "for the memory and cores that are asked for, and that executors reach this machine "
            "(spark.driver.host)"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer
