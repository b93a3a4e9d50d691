"""A checker for functions and classes that nothing in the package uses.

It goes by names and not by types, so it misses a dead function that shares its name with a live
one; what it reports is dead. A use in a test does not count: code that only its test calls is dead.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from tests.tidy.sources import Finding, Module

# Decorators that hand the function to somebody who will call it by other means than its name.
_REGISTERS = {"command", "callback", "handler", "singledispatch", "register", "fixture"}


def _definitions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def _registered(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(target, ast.Attribute) and target.attr in _REGISTERS:
            return True
    return False


def _names(node: ast.AST, *, strings: bool) -> Iterator[str]:
    """Every name that is used below a node; with ``strings`` those spelled as text as well."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr
        elif isinstance(child, ast.ImportFrom):
            yield from (alias.name for alias in child.names)
        elif strings and isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def _uses(module: Module) -> Iterator[str]:
    # An __init__ exports by table and lazily, so there a string that equals a name is a use.
    yield from _names(module.tree, strings=module.is_package)
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                yield from _names(node.value, strings=True)


def entry_points(scripts: Mapping[str, str]) -> set[str]:
    """The function names behind ``[project.scripts]``."""
    return {target.rpartition(":")[2] for target in scripts.values()}


def check_dead(
    package: list[Module],
    users: list[Module],
    called_from_outside: set[str],
    kept: Mapping[str, str],
) -> list[Finding]:
    """Definitions of the package that neither it nor its users mention.

    ``kept`` maps ``path:name`` to the reason why it stays; an entry that is used after all, or is
    gone, is reported too.
    """
    uses = Counter(name for module in (*package, *users) for name in _uses(module))
    found, unneeded = [], set(kept)
    for module in package:
        for node in _definitions(module):
            own = Counter(_names(node, strings=module.is_package))
            alive = uses[node.name] > own[node.name]
            # Python itself calls a module's __getattr__ and its like.
            special = node.name.startswith("__") and node.name.endswith("__")
            if alive or special or node.name in called_from_outside or _registered(node):
                continue
            entry = f"{module.path}:{node.name}"
            if entry in kept:
                unneeded.discard(entry)
            else:
                what = f"{node.name} is used by nothing but tests; use it, export it or remove it"
                found.append(Finding(f"{module.path}:{node.lineno}", what))
    found += [
        Finding("tests/tidy/test_dead_code.py", f"KEPT names {entry} without need")
        for entry in sorted(unneeded)
    ]
    return found
