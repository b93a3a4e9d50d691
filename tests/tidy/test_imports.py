"""Imports point down, and the core stays pure."""

from __future__ import annotations

import pytest

from tests.tidy.layers import (
    ASIDE,
    LAYERS,
    NARROWED,
    PARTS,
    SIDEWAYS,
    allowed,
    check_layers,
    check_pure,
    imports,
    part_of,
)
from tests.tidy.sources import PACKAGE, modules, parse, report


def test_every_import_of_the_package_points_down() -> None:
    found = check_layers(list(modules(PACKAGE)))
    assert not found, report(found)


def test_the_pure_parts_touch_nothing_outside() -> None:
    found = check_pure(list(modules(PACKAGE)))
    assert not found, report(found)


def test_the_checkers_see_the_package() -> None:
    names = {module.name for module in modules(PACKAGE)}
    assert {"kafka_keyshared.errors", "kafka_keyshared.model"} <= names


def test_each_part_stands_in_one_place_and_the_tables_name_no_unknown_part() -> None:
    placed = [part for layer in LAYERS for part in layer] + list(ASIDE)
    named = {part for may, users in ASIDE.values() for part in may | users}
    named |= set(NARROWED) | {part for may in NARROWED.values() for part in may}
    named |= {part for pair in SIDEWAYS for part in pair}
    assert len(placed) == len(set(placed))
    assert named <= PARTS


def test_no_two_parts_may_import_each_other() -> None:
    mutual = {
        (one, two)
        for one in PARTS
        for two in PARTS
        if one < two and two in allowed(one) and one in allowed(two)
    }
    assert mutual == set()


@pytest.mark.parametrize(
    ("path", "statement", "complaint"),
    [
        (
            "core/records/window.py",
            "from kafka_keyshared.runtime.loop import run",
            "core may not import",
        ),
        (
            "core/records/window.py",
            "from kafka_keyshared.config import Settings",
            "core may not import",
        ),
        (
            "core/records/window.py",
            "def f():\n    import kafka_keyshared.observability.web",
            "core may not import web",
        ),
        ("core/routing/ring.py", "from ...config import Settings", "core may not import config"),
        ("core/routing/ring.py", "from ... import config", "core may not import"),
        ("model.py", "from kafka_keyshared import errors, hashing", "may not import hashing"),
        (
            "executors/threads/pool.py",
            "from kafka_keyshared.runtime.loop import Loop",
            "pools may not import",
        ),
        ("runtime/loop.py", "from ..app import service", "owner may not import app"),
        (
            "observability/web/metrics.py",
            "from kafka_keyshared.executors.port import Pool",
            "web may not import",
        ),
        ("dlq/publish.py", "from kafka_keyshared.runtime.loop import Loop", "dlq may not import"),
        (
            "observability/audit/judge.py",
            "from kafka_keyshared.errors import ConfigError",
            "audit may not import",
        ),
        (
            "testing/clusters/jars.py",
            "from kafka_keyshared.model import Record",
            "local may not import model",
        ),
        (
            "core/contract/events.py",
            "from kafka_keyshared.observability.audit.ledger import Ledger",
            "audit",
        ),
        ("spark/executor.py", "from kafka_keyshared.client.kafka import Client", "spark may not"),
        ("lab/simulator/world.py", "import kafka_keyshared", "sim may not import"),
        (
            "keys.py",
            "if typing.TYPE_CHECKING:\n    from kafka_keyshared.cli import Options",
            "keys may not import cli",
        ),
        ("newpart.py", "", "is in no layer"),
        ("newpart/part.py", "", "is in no layer"),
    ],
)
def test_a_planted_import_is_found(path: str, statement: str, complaint: str) -> None:
    tree = [
        parse(statement, f"{PACKAGE}/{path}"),
        *(
            parse("", f"{PACKAGE}/{name}.py")
            for name in ("config", "errors", "hashing", "app/service", "pools/threads")
            if name != path.removesuffix(".py")
        ),
    ]
    (finding,) = check_layers(tree)
    assert complaint in str(finding)
    assert finding.where.startswith(f"{PACKAGE}/{path}")


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
        ("spark/driver.py", "from kafka_keyshared.client.kafka import Client"),
        ("errors.py", "import threading"),
    ],
)
def test_an_import_that_points_down_or_outside_is_no_matter_of_layers(
    path: str, statement: str
) -> None:
    assert check_layers([parse(statement, f"{PACKAGE}/{path}")]) == []


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


def test_a_submodule_belongs_to_the_nearest_part_that_is_placed() -> None:
    assert part_of("kafka_keyshared.core.routing.ring") == "core"
    assert part_of("kafka_keyshared.spark.driver") == "spark.driver"
    assert part_of("kafka_keyshared.spark.executor") == "spark"
    assert part_of("kafka_keyshared.newpart.module") is None


def test_relative_imports_resolve_like_python_resolves_them() -> None:
    module = parse("from . import ring\nfrom ..lanes import Lane", f"{PACKAGE}/core/routing/x.py")
    known = {"kafka_keyshared.core.routing.ring"}
    names = [name for _, name in imports(module, known)]
    assert names == ["kafka_keyshared.core.routing.ring", "kafka_keyshared.core.lanes.closed"]
    package = parse("from . import ring", f"{PACKAGE}/core/routing/__init__.py")
    assert [name for _, name in imports(package, known)] == names[:1]
