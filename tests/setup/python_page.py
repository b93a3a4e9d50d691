"""Writes docs/reference/python.md from the signatures and docstrings of the exports.

``python tests/setup/python_page.py`` writes the whole page; a tidy test compares it with the
package.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.setup.public_names import EXPORTING  # noqa: E402 - found through the line above

PAGE = ROOT / "docs" / "reference" / "python.md"
PACKAGE = "kafka_keyshared"
WIDTH = 100

HEAD = """\
# Python API

The exports of the package, with their signatures and docstrings, written by `make docs`.

- `**options` are the [settings](configuration.md) of the package. `conf` has those of the client.
- A class without a signature takes no arguments, or only the package makes its instances.
- `...` is a default that is an object.
"""

_ROLE = re.compile(r":\w+:`(~?)([^`]+)`")
_SIMPLE = (bool, int, float, str, bytes, type(None))


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for name in EXPORTING:
        module = import_module(name)
        parts.append(f"## {name}\n")
        parts += [_export(each, getattr(module, each)) for each in sorted(module.__all__)]
    return "\n".join(parts)


def _export(name: str, found: Any) -> str:
    if inspect.isclass(found) and not found.__module__.startswith(PACKAGE):
        parts = [f"### {name}\n", _block(f"{name} = {_base(found)}")]
    elif inspect.isclass(found):
        parts = [f"### {name}\n", _class_block(name, found), _prose(found)]
        if members := "\n".join(_member(name, *each) for each in _members(found)):
            parts.append(members)
    elif inspect.isroutine(found):
        parts = [f"### {name}\n", _block(_call(name, inspect.signature(found))), _prose(found)]
    else:
        value = fill(f"{name} = {_annotation(found)}", WIDTH, subsequent_indent="    ")
        parts = [f"### {name}\n", _block(value)]
    return "\n".join(part for part in parts if part)


def _class_block(name: str, found: type) -> str:
    bases = ", ".join(filter(None, map(_base, found.__bases__)))
    lines = [f"class {name}({bases})" if bases else f"class {name}"]
    signature = _constructor(found)
    if signature is not None:
        lines += ["", _call(name, signature)]
    if dataclasses.is_dataclass(found):
        public = [each for each in dataclasses.fields(found) if not each.name.startswith("_")]
        if public:
            lines += ["", *(f"{each.name}: {_annotation(each.type)}" for each in public)]
    return _block("\n".join(lines))


def _base(base: type) -> str:
    """Return the name of a base class; empty for one that is not for users."""
    if base.__module__.rpartition(".")[2] == "cimpl":
        return f"confluent_kafka.{base.__name__}"
    exported = any(getattr(import_module(each), base.__name__, None) is base for each in EXPORTING)
    return base.__name__ if exported or issubclass(base, BaseException) else ""


def _constructor(found: type) -> Signature | None:
    """Return how a user makes an instance; None where only the package does."""
    if getattr(found, "_is_protocol", False) or vars(object)["__init__"] is inspect.getattr_static(
        found, "__init__"
    ):
        return None
    try:
        signature = inspect.signature(found)
    except ValueError:
        return None
    private = any(name.startswith("_") for name in signature.parameters)
    return None if private else signature.replace(return_annotation=Signature.empty)


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that this package defines, by name.

    A method that only guards one of the client's own is not among them.
    """
    own = [base for base in found.__mro__ if base.__module__.startswith(PACKAGE)]
    for name in sorted({name for base in own for name in vars(base) if not name.startswith("_")}):
        member = next(vars(base)[name] for base in own if name in vars(base))
        function = getattr(member, "__func__", member)
        guards = hasattr(function, "__wrapped__") and not inspect.isfunction(function.__wrapped__)
        if isinstance(member, property) or (inspect.isfunction(function) and not guards):
            yield name, member


def _member(owner: str, name: str, member: Any) -> str:
    if isinstance(member, property):
        annotation = inspect.signature(member.fget).return_annotation if member.fget else ""
        block = f"{owner}.{name}: {_annotation(annotation)}"
    else:
        function: Callable[..., Any] = getattr(member, "__func__", member)
        signature = inspect.signature(function)
        if not isinstance(member, staticmethod):
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        before = "async " if inspect.iscoroutinefunction(function) else ""
        block = before + _call(f"{owner}.{name}", signature)
    prose = _prose(member)
    return f"#### {owner}.{name}\n\n{_block(block)}" + (f"\n{prose}" if prose else "")


def _call(name: str, signature: Signature) -> str:
    """Return a call as a signature shows it; over several lines where one is too long."""
    parts = _parameters(signature)
    end = signature.return_annotation
    returns = "" if end in (Signature.empty, None, "None") else f" -> {_annotation(end)}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
"""Stars by the kind of a parameter."""


def _parameters(signature: Signature) -> list[str]:
    parts: list[str] = []
    starred = False
    for each in signature.parameters.values():
        if each.kind is Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or each.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        stars = _STARS.get(each.kind, "")
        text = f"{stars}{each.name}"
        if stars != "**" and each.annotation is not Parameter.empty:
            text += f": {_annotation(each.annotation)}"
        if each.default is not Parameter.empty:
            simple = isinstance(each.default, _SIMPLE) or each.default == ()
            text += " = " if ": " in text else "="
            text += repr(each.default) if simple else "..."
        parts.append(text)
    return parts


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _prose(found: Any) -> str:
    """Return a docstring as Markdown: roles are names, and an example is a block."""
    lines: list[str] = []
    inside = ""
    for line in inspect.cleandoc(found.__doc__ or "").splitlines():
        if (inside == "::" and line and not line.startswith(" ")) or (inside == ">>>" and not line):
            _end_example(lines)
            inside = ""
        if not inside and line.endswith("::"):
            lines += [_markdown(line.removesuffix(":")), "", "```text"]
            inside = "::"
        elif not inside and line.lstrip().startswith(">>>"):
            lines += ["```text", line.strip()]
            inside = ">>>"
        elif inside:
            lines += [line.removeprefix("    ")] if line or lines[-1] != "```text" else []
        else:
            lines.append(_markdown(line))
    if inside:
        _end_example(lines)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n" if lines else ""


def _end_example(lines: list[str]) -> None:
    while not lines[-1]:
        lines.pop()
    lines += ["```", ""]


def _markdown(line: str) -> str:
    def name(role: re.Match[str]) -> str:
        said = role[2].lstrip(".")
        return f"`{said.rpartition('.')[2] if role[1] else said}`"

    parts = re.split(r"(`[^`]*`)", _ROLE.sub(name, line).replace("``", "`"))
    return "".join(
        part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts)
    )


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
