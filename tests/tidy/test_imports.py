"""Imports point down, no files import one another in a circle, and the core stays pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.tidy.layers import (
    NARROWED,
    ORDER,
    PURE,
    RESERVED,
    check_layers,
    check_pure,
    circles,
    edges,
    imports,
    inner_name,
    is_in,
)
from tests.tidy.sources import PACKAGE, Module, modules, parse, report


def test_every_import_of_the_package_points_down() -> None:
    found = check_layers(modules(PACKAGE))
    assert not found, report(found)


def test_the_pure_parts_touch_nothing_outside() -> None:
    found = check_pure(modules(PACKAGE))
    assert not found, report(found)


def test_the_tables_name_only_what_is_there() -> None:
    names = [inner_name(module.name) for module in modules(PACKAGE)]
    tables = {*PURE, *NARROWED, *RESERVED}
    tables |= {part for parts in NARROWED.values() for part in parts}
    tables |= {part for parts in RESERVED.values() for part in parts}
    assert [part for part in sorted(tables) if not any(is_in(name, part) for name in names)] == []
    for package, order in ORDER.items():
        assert [part for part, times in Counter(order).items() if times > 1] == []
        inside = {f"{package}.{part}".removeprefix(".") for part in order if part != "__init__"}
        assert [part for part in inside if not any(is_in(name, part) for name in names)] == []


@pytest.mark.parametrize(
    ("path", "statement", "complaint"),
    [
        (
            "core/records/window.py",
            "from kafka_keyshared.runtime.loop import run",
            "core may not import runtime",
        ),
        (
            "core/records/window.py",
            "from kafka_keyshared.config import Settings",
            "core may not import config",
        ),
        (
            "core/records/window.py",
            "def f():\n    import kafka_keyshared.observability.web",
            "core may not import observability",
        ),
        ("core/routing/ring.py", "from ...config import Settings", "core may not import config"),
        ("core/routing/ring.py", "from ... import config", "core may not import config"),
        (
            "core/records/window.py",
            "from kafka_keyshared.core.offsets.runs import Runs",
            "records may not import offsets",
        ),
        ("hashing.py", "from kafka_keyshared import errors, model", "may not import model"),
        (
            "executors/threads/pool.py",
            "from kafka_keyshared.runtime.loop import Loop",
            "executors may not import runtime",
        ),
        (
            "executors/threads/pool.py",
            "from kafka_keyshared.executors.coroutines import asyncio_pool",
            "threads may not import coroutines",
        ),
        ("runtime/loop.py", "from ..app import service", "runtime may not import app"),
        (
            "observability/web/prometheus_collector.py",
            "from kafka_keyshared.executors.port import Pool",
            "observability.web may not import executors",
        ),
        (
            "observability/audit/judge.py",
            "from kafka_keyshared.errors import ConfigError",
            "observability.audit may not import errors",
        ),
        (
            "observability/doctor/judge.py",
            "from kafka_keyshared.observability.audit.ledger import Ledger",
            "may not import observability.audit",
        ),
        (
            "testing/clusters/jars.py",
            "from kafka_keyshared.model import Record",
            "testing.clusters may not import model",
        ),
        (
            "spark/task.py",
            "from kafka_keyshared.client.kafka import Client",
            "spark may not import client",
        ),
        (
            "lab/demo/run.py",
            "from kafka_keyshared.spark.driver import batch",
            "may not import spark",
        ),
        ("app/run.py", "import kafka_keyshared", "app may not import __init__"),
        (
            "config/keys/sources.py",
            "if typing.TYPE_CHECKING:\n    from kafka_keyshared.cli import Options",
            "config may not import cli",
        ),
        ("newpart.py", "", "newpart is in no order"),
        ("newpart/part.py", "", "newpart is in no order"),
        ("core/newpart/part.py", "", "newpart is in no order"),
    ],
)
def test_a_planted_import_is_found(path: str, statement: str, complaint: str) -> None:
    tree = [parse(statement, f"{PACKAGE}/{path}"), *_neighbours(path)]
    found = check_layers(tree)
    assert complaint in str(found[0])
    assert all(finding.where.startswith(f"{PACKAGE}/{path}") for finding in found)


def _neighbours(path: str) -> Iterator[Module]:
    for name in ("config/__init__", "errors", "model", "app/service", "spark/driver/batch"):
        if name != path.removesuffix(".py"):
            yield parse("", f"{PACKAGE}/{name}.py")


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("cli/main.py", "import kafka_keyshared.testing"),
        ("lab/demo/run.py", "from kafka_keyshared import KeyShared"),
        ("lab/demo/run.py", "from kafka_keyshared.observability.audit import judge"),
        ("runtime/loop.py", "from kafka_keyshared.executors.port import Pool"),
        ("core/routing/ring.py", "from ...hashing import slot_of"),
        ("core/routing/__init__.py", "from .ring import VnodeRing"),
        ("testing/clusters/broker.py", "from kafka_keyshared.errors import MissingPartError"),
        ("spark/driver/plan.py", "from kafka_keyshared.client.kafka import Client"),
        ("errors.py", "import threading"),
    ],
)
def test_an_import_that_points_down_or_outside_is_no_matter_of_layers(
    path: str, statement: str
) -> None:
    assert check_layers([parse(statement, f"{PACKAGE}/{path}")]) == []


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "c", "c": "a", "d": "a"}, [["a", "b", "c"]]),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, [["a", "b"], ["c", "d"]]),
    ],
)
def test_a_planted_circle_is_found(statements: dict[str, str], found: list[list[str]]) -> None:
    tree = [
        parse(f"def f():\n    from . import {to}" if to else "", f"{PACKAGE}/core/{name}.py")
        for name, to in statements.items()
    ]
    assert circles(edges(tree)) == [_named(circle) for circle in found]


def _named(names: Iterable[str]) -> list[str]:
    return [f"{PACKAGE}.core.{name}" for name in names]


@pytest.mark.parametrize(
    "statement",
    [
        "import threading",
        "import time",
        "import random",
        "import logging",
        "import io",
        "import os.path",
        "from concurrent.futures import Future",
        "import confluent_kafka",
        "def f():\n    from datetime import datetime",
        "print('x')",
        "open('x')",
        "__import__('time')",
    ],
)
def test_a_planted_impurity_is_found(statement: str) -> None:
    (finding,) = check_pure([parse(statement, f"{PACKAGE}/core/planted.py")])
    assert finding.where.startswith(f"{PACKAGE}/core/planted.py")
    assert check_pure([parse(statement, f"{PACKAGE}/client/kafka.py")]) == []


def test_relative_imports_resolve_like_python_resolves_them() -> None:
    module = parse(
        "from . import ring\nfrom ..lanes.closed import Lane", f"{PACKAGE}/core/routing/x.py"
    )
    known = {"kafka_keyshared.core.routing.ring"}
    names = [name for _, name in imports(module, known)]
    assert names == ["kafka_keyshared.core.routing.ring", "kafka_keyshared.core.lanes.closed"]
    package = parse("from . import ring", f"{PACKAGE}/core/routing/__init__.py")
    assert [name for _, name in imports(package, known)] == names[:1]
