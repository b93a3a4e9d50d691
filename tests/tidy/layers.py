"""Order of packages: the tables, and the checkers of imports.

Imports point down. A package imports only packages that stand before it in :data:`ORDER`, so the
core can be read, tested and simulated without I/O, and everything else without the command line.
The same holds for the sub-packages of a package that has an order of its own. Every import counts,
also one inside a function or under ``TYPE_CHECKING``: a type is knowledge of the other package too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.tidy.sources import PACKAGE, Finding, Module, walk

ROOT_PART = "__init__"
"""A package's own ``__init__`` in its order."""

# From the bottom up, by package. The whole package is "".
ORDER: dict[str, tuple[str, ...]] = {
    "": (
        *("errors", "former_names", "clock", "logs", "hashing", "model", "headers"),
        *("failure_status", "shared_status", "status"),
        *("platform", "core", "executors", "config", "client", "observability", "dlq", "runtime"),
        *("app", ROOT_PART, "testing", "spark", "lab", "cli"),
    ),
    "core": (
        ROOT_PART,
        *("records", "contract", "lanes", "workers", "routing", "keys", "telemetry", "offsets"),
        *("limits", "subscription", "leasing", "backpressure", "worker_changes", "failures"),
        *("partitions", "dispatch", "status"),
    ),
    "executors": (
        ROOT_PART,
        *("handling", "failed_lanes", "contexts", "key_chains", "mailbox", "lease", "port"),
        *("thread_state", "state_calls", "notice_words", "commit_words", "notice_text"),
        "command_interpreter",
        *("threads", "batches", "coroutines", "processes", "pull", "inline"),
    ),
}

# What a part may import of the package besides itself, where that is less than all that is below.
NARROWED: dict[str, set[str]] = {
    # The console reads snapshots and sends events; it does not know how workers run.
    "observability.web": {
        *(
            "config",
            "core",
            "observability.diagnosis",
            "status",
            "failure_status",
            "shared_status",
            "hashing",
        ),
        *("model", "errors", "former_names", "logs"),
    },
    # The judge of a run shares nothing with what it judges.
    "observability.audit": {"model"},
    "observability.diagnosis": {
        "core",
        "status",
        "failure_status",
        "shared_status",
        "model",
        "hashing",
        "errors",
    },
    # A dead letter goes out through the client's port.
    "dlq": {"client", "config", "core", "headers", "hashing", "model", "errors", "logs"},
    # Brokers for tests can be started without the package.
    "testing.clusters": {"errors"},
    # A plain key can be read where no configuration is.
    "config.keys": {"core", "headers", "hashing", "model", "errors", "logs"},
    # Only the driver talks to Kafka; an executor that did would join the group.
    "spark": {
        *("core", "executors", "dlq", "observability.audit", "testing.clusters", "config"),
        *("headers", "hashing", "model", "errors", "logs", "clock"),
    },
    "spark.driver": {
        *("spark", "client"),
        *("core", "executors", "dlq", "observability.audit", "testing.clusters", "config"),
        *("headers", "hashing", "model", "errors", "logs", "clock"),
    },
}

# Who may import a part, where that is not everything above.
RESERVED: dict[str, set[str]] = {
    "observability.audit": {"cli", "testing", "lab", "spark"},
    "testing.clusters": {"cli", "testing", "lab", "spark"},
    "spark": {"cli"},
    "lab.simulator": {"cli", "lab"},
}

PURE = {
    *(
        "core",
        "observability.diagnosis",
        "status",
        "failure_status",
        "shared_status",
        "model",
        "headers",
        "hashing",
    ),
    "errors",
}
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


def inner_name(module: str) -> str:
    """Return the dotted name of a module below the package; "" for the package itself."""
    return module.removeprefix(PACKAGE).removeprefix(".")


def is_in(name: str, part: str) -> bool:
    """Say whether a module is a part, or below it."""
    return not part or f"{name}.".startswith(f"{part}.")


def child(name: str, package: str) -> str:
    """Return the part of a package that a module in it belongs to."""
    rest = name.removeprefix(package).removeprefix(".")
    return rest.partition(".")[0] or ROOT_PART


def imports(module: Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of everything that a module imports.

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


def check_layers(tree: Iterable[Module]) -> list[Finding]:
    """Find imports that point up or that a table excludes, and modules that are in no order."""
    tree = [*tree]
    known = {module.name for module in tree}
    found = []
    for module in tree:
        user = inner_name(module.name)
        found += [
            Finding(module.path, f"{child(user, package)} is in no order; see tests/tidy/layers.py")
            for package, order in ORDER.items()
            if is_in(user, package) and child(user, package) not in order
        ]
        for line, name in imports(module, known):
            if is_in(name, PACKAGE):
                found += [
                    Finding(f"{module.path}:{line}", what)
                    for what in _complaints(user, inner_name(name))
                ]
    return found


def _complaints(user: str, used: str) -> Iterator[str]:
    for package, order in ORDER.items():
        if is_in(user, package) and is_in(used, package):
            above, below = child(user, package), child(used, package)
            if {above, below} <= {*order} and order.index(above) < order.index(below):
                yield f"{above} may not import {below}; imports point down"
    narrow = max((part for part in NARROWED if is_in(user, part)), key=len, default=None)
    if narrow is not None and not any(is_in(used, each) for each in {narrow, *NARROWED[narrow]}):
        yield f"{narrow} may not import {used or PACKAGE}; see NARROWED in tests/tidy/layers.py"
    for part, users in RESERVED.items():
        if is_in(used, part) and not any(is_in(user, each) for each in {part, *users}):
            yield f"{user} may not import {part}; see RESERVED in tests/tidy/layers.py"


def check_pure(tree: Iterable[Module]) -> list[Finding]:
    """Find what would give a pure part a thread, a clock, chance, a log or I/O."""
    found = []
    for module in tree:
        if not any(is_in(inner_name(module.name), part) for part in PURE):
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


def edges(tree: Iterable[Module]) -> dict[str, set[str]]:
    """Return for each module the modules of the package that it imports."""
    tree = [*tree]
    known = {module.name for module in tree}
    return {
        module.name: {name for _, name in imports(module, known) if name in known} - {module.name}
        for module in tree
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return every set of modules that can all reach one another."""
    reached = {module: _reached(graph, module) for module in graph}
    found: list[list[str]] = []
    for module in sorted(graph):
        if module in reached[module] and not any(module in circle for circle in found):
            found.append(sorted(each for each in reached[module] if module in reached[each]))
    return found


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found
