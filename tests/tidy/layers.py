"""Which part of the package may import which: the table, and the checker that holds it.

Imports point down. A part may import the parts below its layer, never one beside or above it, so
that the core can be read, tested and simulated without the world, and the world without the
command line. Every import counts: inside a function and under ``TYPE_CHECKING`` too, because a
type is knowledge of the other part as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.sources import PACKAGE, Finding, Module, walk

# From the top down. A part is a module or a package below kafka_keyshared; ROOT is its __init__.
ROOT_PART = "<the package itself>"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("admin_client",),
    ("testing", "demo", "bench", "advise", "doctor"),
    (ROOT_PART,),
    ("sim",),
    ("app",),
    ("owner",),
    ("web", "dlq", "pools"),
    ("client", "handling"),
    ("program",),
    ("config",),
    ("keys", "diagnosis"),
    ("core",),
    ("headers",),
    ("status", "shared_status", "model", "hashing", "errors", "logs", "clock"),
)

SPARK = {
    *("core", "handling", "pools", "dlq", "audit", "local", "config", "keys"),
    *("headers", "hashing", "model", "errors", "logs", "clock"),
}

# Parts that stand beside the layers: what each may import, and who may import it.
ASIDE: dict[str, tuple[set[str], set[str]]] = {
    "audit": ({"model"}, {"cli", "testing", "demo", "bench", "sim", "spark"}),
    "local": ({"errors"}, {"cli", "testing", "demo", "bench", "spark"}),
    "spark": (SPARK, {"cli"}),
    # Only the driver talks to Kafka; an executor that did would join the group.
    "spark.driver": (SPARK | {"spark", "client"}, {"cli"}),
}

# Narrower than the layers: the console reads snapshots and sends events, and a dead letter goes
# out through the client port; neither knows how workers run. Pools know no client, so that records
# can be run where none may be.
NARROWED: dict[str, set[str]] = {
    "pools": {
        *("handling", "program", "config", "keys", "core", "headers", "hashing", "model"),
        *("errors", "logs", "clock"),
    },
    "web": {
        *("config", "core", "diagnosis", "status", "shared_status", "hashing", "model", "errors"),
        "logs",
    },
    "dlq": {
        *("client", "config", "keys", "core", "headers", "hashing", "model", "errors"),
        "logs",
    },
}

# Layers may not look sideways; these may, because one extends the other.
SIDEWAYS: set[tuple[str, str]] = {
    *(("status", "model"), ("status", "shared_status"), ("shared_status", "model")),
    *(("hashing", "errors"), ("model", "errors")),
}

PURE = {"core", "diagnosis", "status", "shared_status", "model", "headers", "hashing", "errors"}
# Everything that a pure part may import besides the package: no thread, clock, random, log or I/O.
PURE_IMPORTS = {
    "__future__",
    "abc",
    "array",
    "base64",
    "binascii",
    "blake3",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "mmh3",
    "msgspec",
    "operator",
    "re",
    "sortedcontainers",
    "string",
    "struct",
    "types",
    "typing",
    "weakref",
    "zlib",
}
# Builtins that reach the world without an import.
IMPURE_CALLS = {"open", "print", "input", "__import__", "exec", "eval", "breakpoint"}

PARTS = {part for layer in LAYERS for part in layer} | set(ASIDE)


def part_of(module: str) -> str | None:
    """The part that a dotted module name belongs to; None when it is in no table."""
    if module == PACKAGE:
        return ROOT_PART
    words = module.removeprefix(f"{PACKAGE}.").split(".")
    for length in range(len(words), 0, -1):
        if (name := ".".join(words[:length])) in PARTS:
            return name
    return None


def allowed(part: str) -> set[str]:
    """The parts that a part may import, itself included."""
    if part in ASIDE:
        return ASIDE[part][0] | {part}
    if part in NARROWED:
        return NARROWED[part] | {part}
    depth = next(i for i, layer in enumerate(LAYERS) if part in layer)
    below = {name for layer in LAYERS[depth + 1 :] for name in layer}
    beside = {name for name, (_, users) in ASIDE.items() if part in users}
    sideways = {target for user, target in SIDEWAYS if user == part}
    return below | beside | sideways | {part}


def imports(module: Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that a module imports.

    ``known`` are the names of the package's own modules: ``from kafka_keyshared.core import lanes``
    names a module, ``from kafka_keyshared.model import Record`` a value.
    """
    for node in walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - module.is_package
                parents = module.name.split(".")[: len(module.name.split(".")) - up]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in known else base


def check_layers(tree: list[Module]) -> list[Finding]:
    """Imports that point up or sideways, and modules that stand in no layer."""
    known = {module.name for module in tree}
    found = []
    for module in tree:
        part = part_of(module.name)
        if part is None:
            what = "is in no layer; place it in tests/tidy/layers.py"
            found.append(Finding(module.path, what))
            continue
        may = allowed(part)
        for line, name in imports(module, known):
            if name.split(".")[0] != PACKAGE:
                continue
            target = part_of(name)
            if target not in may:
                what = f"{part} may not import {target or name}; imports point down"
                found.append(Finding(f"{module.path}:{line}", what))
    return found


def check_pure(tree: list[Module]) -> list[Finding]:
    """What would give a pure part a thread, a clock, chance, a log or I/O."""
    found = []
    for module in tree:
        if part_of(module.name) not in PURE:
            continue
        for line, name in imports(module, set()):
            top = name.split(".")[0]
            if top not in PURE_IMPORTS and top != PACKAGE:
                what = f"imports {name}; pure parts take only what layers.PURE_IMPORTS names"
                found.append(Finding(f"{module.path}:{line}", what))
        for node in walk(module.tree):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
                what = f"calls {called.id}(); a pure part touches nothing outside"
                found.append(Finding(f"{module.path}:{called.lineno}", what))
    return found
