"""Checkers for the habits of the house: small modules, no swallowed error, tests that assert."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.sources import PACKAGE, Finding, Module, walk

MODULE_LINES = 500
FUNCTION_LINES = 70

# One letter stands in brackets, so that this file does not find itself.
_OPEN_WORK = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b")
_MACHINE_PATH = re.compile(r"(?<![\w./])/(?:home|root|Users|work)/\w+")
_REGISTRY = re.compile(r"index[-]url|find[-]links|trusted[-]host|pypi[.]org|files[.]pythonhosted")

_BROAD = {"Exception", "BaseException"}
_ASSERTING_CALL = re.compile(r"^_?(assert|check|expect|verify|require)(_|$)")
_ASSERTING_PYTEST = {"raises", "warns", "fail"}

_SELVES = {"self", "cls"}
# The client's own error codes begin with an underscore.
_THEIRS_TO_NAME = {"KafkaError", "os"}
# Of named tuples, of ctypes, of sys, and of the tasks of asyncio.
_PUBLIC_ALL_THE_SAME = {"_replace", "_asdict", "_name", "_current_frames", "_must_cancel"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[Function]:
    """Every function of a module, methods and inner ones included."""
    for node in walk(tree):
        if isinstance(node, Function):
            yield node


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as it is written; empty for anything that is not a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def long_modules(module: Module) -> list[Finding]:
    """A module that no longer fits into one head."""
    lines = len(module.text.splitlines())
    if lines <= MODULE_LINES:
        return []
    return [Finding(module.path, f"{lines} lines; split it (at most {MODULE_LINES})")]


def long_functions(module: Module) -> list[Finding]:
    """Functions that no longer fit into one head."""
    found = []
    for function in functions(module.tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES:
            what = f"{function.name} has {length} lines; split it (at most {FUNCTION_LINES})"
            found.append(Finding(f"{module.path}:{function.lineno}", what))
    return found


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_is_broad, kind.elts))
    return kind is None or dotted(kind) in _BROAD


def _says_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(step, ast.Pass)
        or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
        for step in body
    )


def _only_leaves(body: list[ast.stmt]) -> bool:
    """Whether a handler does nothing but go on, or away, without a word."""
    last = body[-1]
    leaves = isinstance(last, ast.Continue | ast.Break) or (
        isinstance(last, ast.Return)
        and (last.value is None or isinstance(last.value, ast.Constant))
        and getattr(last.value, "value", None) is None
    )
    return leaves and _says_nothing(body[:-1])


def check_swallowed(module: Module) -> list[Finding]:
    """Errors that are caught and forgotten."""
    found = []
    for node in walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            if _says_nothing(node.body) or (_is_broad(node.type) and _only_leaves(node.body)):
                what = "an error is swallowed; handle it, count it, or name it in suppress()"
                found.append(Finding(f"{module.path}:{node.lineno}", what))
        elif (
            isinstance(node, ast.Call)
            and dotted(node.func).split(".")[-1] == "suppress"
            and any(map(_is_broad, node.args))
        ):
            what = "suppress() of every error; name the one that is expected"
            found.append(Finding(f"{module.path}:{node.lineno}", what))
    return found


def check_bare_asserts(module: Module) -> list[Finding]:
    """Rules that ``python -O`` would strip out of the package."""
    what = "an assert disappears under python -O; raise InvariantError"
    return [
        Finding(f"{module.path}:{node.lineno}", what)
        for node in walk(module.tree)
        if isinstance(node, ast.Assert)
    ]


def _own_names(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives to its functions, and to attributes of its own objects."""
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node.value) in _SELVES:
            yield node.attr
        elif isinstance(node, Function):
            yield node.name


def check_private(module: Module) -> list[Finding]:
    """Private names of another module: what somebody else needs wants a face of its own."""
    own = set(_own_names(module.tree))
    found = []
    for node in walk(module.tree):
        taken: list[str] = []
        if isinstance(node, ast.Attribute) and dotted(node.value) not in _THEIRS_TO_NAME:
            taken = [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            taken = [alias.name for alias in node.names]
        for name in taken:
            if re.match("_[a-z]", name, re.IGNORECASE) and name not in own | _PUBLIC_ALL_THE_SAME:
                what = f"{name} is private to another module; give it a public name"
                found.append(Finding(f"{module.path}:{getattr(node, 'lineno', 0)}", what))
    return found


def check_sleeps(module: Module) -> list[Finding]:
    """Tests that wait for a time to pass instead of for something to happen."""
    found = []
    for node in walk(module.tree):
        called = isinstance(node, ast.Attribute | ast.Name) and dotted(node) == "time.sleep"
        taken = (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and any(alias.name == "sleep" for alias in node.names)
        )
        if called or taken:
            line = getattr(node, "lineno", 0)
            found.append(Finding(f"{module.path}:{line}", "sleeps; wait for an event or condition"))
    return found


def _asserts(function: Function) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and (words := dotted(node.func).split(".")):
            if _ASSERTING_CALL.match(words[-1]):
                return True
            if words[0] == "pytest" and words[-1] in _ASSERTING_PYTEST:
                return True
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if dotted(error) == "AssertionError":
                return True
    return False


def check_tests_assert(module: Module) -> list[Finding]:
    """Tests that cannot fail except by crashing.

    A helper whose name begins with assert, check, expect, verify or require counts.
    """
    return [
        Finding(f"{module.path}:{function.lineno}", f"{function.name} asserts nothing")
        for function in functions(module.tree)
        if function.name.startswith("test_") and not _asserts(function)
    ]


def check_text(path: str, text: str) -> list[Finding]:
    """Unfinished work, and words that mean something only on one machine."""
    rules = (
        (_OPEN_WORK, "unfinished work is marked; finish it or take it out"),
        (_MACHINE_PATH, "a path of one machine; a stranger has none of it"),
        (_REGISTRY, "names a package registry; the reader's own pip settings do that"),
    )
    return [
        Finding(f"{path}:{number}", f"{match.group()}: {what}")
        for number, line in enumerate(text.splitlines(), start=1)
        for rule, what in rules
        if (match := rule.search(line))
    ]
