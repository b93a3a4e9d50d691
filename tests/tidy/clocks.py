"""Who may read real time and chance: nobody below the service, but for a table with reasons."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.habits import dotted, functions
from tests.tidy.sources import PACKAGE, Finding, Module, walk

FOLDERS = ("client", "executors", "runtime")
"""Below the service, and run by a simulator under a clock of its own."""

REAL = {"time", "random", "datetime", "secrets", "uuid"}
"""Modules that know of real time or chance."""

# Where something real is waited for or looked at, as module and function, with the reason.
MAY: dict[tuple[str, str], str] = {
    ("client/kafka.py", "_wait_until_moved"): "waits for a thread of the client's own",
    ("client/kafka.py", "start_over"): "replaces the real client, which no made-up time ends",
    ("client/kafka.py", "_replace_if_due"): "the same",
    ("client/kafka.py", "_replace"): "the same",
    ("client/kept_admin.py", "list_topics"): "waits for a real client to be made, and asks it",
    ("client/kept_admin.py", "answers"): "the same",
    ("client/kept_admin.py", "begin"): "the same",
    ("client/leave_group.py", "leave"): "waits for the real client to be out of its group",
    (
        "client/connection_log.py",
        "__init__",
    ): "the real client's; what stands in for it has no outages",
    ("client/silence_log.py", "__init__"): "a reader of a real client, without an owner",
    ("executors/processes/shm_progress.py", "new_mark"): "marks memory that a real process shares",
    (
        "executors/processes/frames.py",
        "recv",
    ): "waits for a real process, which no made-up time ends",
    ("executors/processes/frames.py", "_read"): "the same",
    ("executors/processes/worker_process.py", "where"): "the same",
    ("executors/processes/spawned.py", "over"): "the same",
    (
        "executors/coroutines/asyncio_pool.py",
        "stop",
    ): "waits for a loop, which no made-up time ends",
}


def readings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of everything that names one of the modules, or takes a name out of one."""
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node.value) in REAL:
            yield node.lineno, dotted(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "") in REAL:
            yield node.lineno, f"from {node.module}"


def check_clocks(module: Module, used: set[tuple[str, str]]) -> list[Finding]:
    """What reads real time or chance without being in the table; notes in ``used`` what is."""
    path = module.path.removeprefix(f"{PACKAGE}/")
    if path.split("/")[0] not in FOLDERS:
        return []
    inside = {
        line: function.name
        for function in functions(module.tree)
        for line in range(function.lineno, (function.end_lineno or function.lineno) + 1)
    }
    found = []
    for line, name in readings(module.tree):
        place = path, inside.get(line, "")
        if place in MAY:
            used.add(place)
        else:
            what = f"{name}: time and chance come from the ports (kafka_keyshared/clock.py)"
            found.append(Finding(f"{module.path}:{line}", what))
    return found
