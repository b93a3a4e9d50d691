"""Systems that ``bench compare`` knows: their guarantees, settings and needs."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import msgspec

from kafka_keyshared.config import make_options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.lab.bench.jars import PEER_JARS, VERSION, compiler


class SystemKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of system. ``sizes`` are measured unless the caller asks for others.

    ``settings`` describes its settings and ``source`` names who recommends them. ``package`` must
    be installed, ``get`` is the command that does it. ``oldest_python`` is the oldest version that
    it supports.
    """

    name: str
    sizes: tuple[str, ...] = ("",)
    key_order: bool
    at_least_once: bool
    bounded_memory: bool
    settings: str
    source: str
    package: str | None = None
    get: str = ""
    oldest_python: tuple[int, int] = (3, 11)
    java: bool = False


GET_PYRALLEL = "python -m pip install pyrallel-consumer"
GET_PEERS = "python -m pip install 'kafka-keyshared[peers]'"

FAMILIES: tuple[SystemKind, ...] = (
    SystemKind(
        name="bare",
        key_order=True,
        at_least_once=True,
        bounded_memory=True,
        settings="consume(10_000, 0.1), the handler in the same thread, a commit once a second",
        source="the loop of confluent-kafka's own examples, with this package's client settings",
    ),
    SystemKind(
        name="keyshared",
        sizes=("thread:8", "thread:100", "asyncio:1000", "process:2"),
        key_order=True,
        at_least_once=True,
        bounded_memory=True,
        settings="the defaults; workers= is what stands behind the first colon",
        source="docs/reference/configuration.md",
    ),
    SystemKind(
        name="thread-pool",
        sizes=("8", "100"),
        key_order=False,
        at_least_once=False,
        bounded_memory=True,
        settings="ThreadPoolExecutor(n).submit() for each record, up to 10,000 of them ahead, "
        "a commit of what was received",
        source="concurrent.futures, in Python's documentation",
    ),
    SystemKind(
        name="process-pool",
        sizes=("2",),
        key_order=False,
        at_least_once=True,
        bounded_memory=True,
        settings="multiprocessing.Pool(n).map() over each fetch with map's own chunks, spawned",
        source="multiprocessing, in Python's documentation: map \"chops the iterable into a number "
        'of chunks which it submits to the process pool as separate tasks"',
    ),
    SystemKind(
        name="asyncio-tasks",
        key_order=False,
        at_least_once=False,
        bounded_memory=False,
        settings="consume(10_000, 0) on the loop, a task for each record, uvloop where installed",
        source="asyncio, in Python's documentation: create_task() and a set that keeps the tasks",
    ),
    SystemKind(
        name="aiokafka",
        key_order=False,
        at_least_once=False,
        bounded_memory=False,
        settings="getmany(), a task for each record, enable_auto_commit as by default",
        source="aiokafka's documentation, Consumer client",
        package="aiokafka",
        get=GET_PEERS,
    ),
    SystemKind(
        name="faststream",
        sizes=("8",),
        key_order=True,
        at_least_once=True,
        bounded_memory=True,
        settings="AckPolicy.NACK_ON_ERROR, max_workers=n: a consumer of the group for each",
        source='FastStream\'s documentation, "Concurrent processing": "concurrent between topic '
        "partitions and sequential within a partition to ensure reliable at-least-once "
        'processing", best with as many workers as partitions',
        package="faststream",
        get=GET_PEERS,
    ),
    SystemKind(
        name="pyrallel-consumer",
        sizes=("2000",),
        key_order=True,
        at_least_once=True,
        bounded_memory=True,
        settings="ExecutionMode.ASYNC, OrderingMode.KEY_HASH, max_in_flight=n",
        source="pyrallel-consumer's own benchmark, benchmarks/pyrallel_consumer_test.py",
        package="pyrallel-consumer",
        get=GET_PYRALLEL,
        oldest_python=(3, 12),
    ),
    SystemKind(
        name="pyrallel-processes",
        sizes=("2",),
        key_order=True,
        at_least_once=True,
        bounded_memory=True,
        settings="ExecutionMode.PROCESS, OrderingMode.KEY_HASH, process_count=n, "
        "max_in_flight=2000",
        source='pyrallel-consumer\'s README, process mode tuning: "use ...process_count", and its '
        "own benchmark",
        package="pyrallel-consumer",
        get=GET_PYRALLEL,
        oldest_python=(3, 12),
    ),
    SystemKind(
        name="parallel-consumer",
        sizes=("16", "100", "1000"),
        key_order=True,
        at_least_once=True,
        bounded_memory=True,
        settings="ordering KEY, maxConcurrency n (16 is its default), commits as by default",
        source='parallel-consumer\'s README and its CoreApp example: ".ordering(KEY)", '
        '".maxConcurrency(1000)"',
        java=True,
    ),
)
_BY_NAME = {family.name: family for family in FAMILIES}


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A system of a family, of one size."""

    family: SystemKind
    size: str

    @property
    def name(self) -> str:
        """Return its name, as the caller asks for it and the result shows it."""
        return f"{self.family.name}:{self.size}" if self.size else self.family.name

    def about(self) -> dict[str, Any]:
        """Return its guarantees, settings and version."""
        family = self.family
        return {
            "system": self.name,
            "key_order": family.key_order,
            "at_least_once": family.at_least_once,
            "bounded_memory": family.bounded_memory,
            "settings": family.settings,
            "source": family.source,
            "version": _version(family),
        }

    def missing(self) -> str | None:
        """Return the missing part, with the command that gets it; None if it can run."""
        family = self.family
        if sys.version_info[:2] < family.oldest_python:
            needed = ".".join(map(str, family.oldest_python))
            return f"it needs Python {needed} or newer, then: {family.get}"
        if family.package is not None and find_spec(family.package.replace("-", "_")) is None:
            return f"{family.package} is not installed: {family.get}"
        if family.java:
            try:
                PEER_JARS.require()
                compiler()
            except KeySharedError as lacking:
                return str(lacking)
        return None


def _version(family: SystemKind) -> str | None:
    if family.java:
        return VERSION
    package = "kafka-keyshared" if family.name == "keyshared" else family.package
    if package is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def every_system() -> tuple[System, ...]:
    """Return all systems that are measured unless the caller asks for others."""
    return tuple(System(family=family, size=size) for family in FAMILIES for size in family.sizes)


def system_of(name: str) -> System:
    """Return the system with this name. Raises :class:`ConfigError` if there is none."""
    first, _, size = name.partition(":")
    family = _BY_NAME.get(first)
    if family is None:
        raise ConfigError(f"--systems {name}: there are {', '.join(_BY_NAME)}")
    if family.sizes == ("",):
        if size:
            raise ConfigError(f"--systems {name}: {first} has no number")
        return System(family=family, size="")
    size = size or family.sizes[0]
    if family.name == "keyshared":
        subscription_settings(make_options({"workers": size}))
    elif not size.isdigit() or not int(size):
        raise ConfigError(f"--systems {name}: a number of at least 1 goes behind the colon")
    return System(family=family, size=size)
