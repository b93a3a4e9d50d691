"""Writes the option tables of docs/reference/cli.md from the command line itself.

``python tests/setup/cli_page.py`` puts each table between its two comments, ``<!-- options: … -->``
and ``<!-- end of options -->``, where the verb stands for the dots. What is written around them is
left as it is. A verb that has no place yet gets a section at the end of the page.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
_END = "<!-- end of options -->"
_PLACE = re.compile(r"<!-- options: (?P<verb>[^>]+?) -->\n.*?" + _END, re.DOTALL)


def verbs() -> dict[str, Any]:
    """Return every command that does something, by the words behind ``keyshared``."""
    from typer.main import get_command

    from kafka_keyshared.cli.app import app

    return dict(_walk(get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if words and (not inner or getattr(command, "invoke_without_command", False)):
        yield " ".join(words), command
    for name, each in inner.items():
        if not each.hidden:
            yield from _walk(each, (*words, name))


def table(command: Any) -> str:
    """Return the arguments and options of a command as a table in Markdown."""
    shown = [each for each in command.params if not each.hidden and each.name != "help"]
    if not shown:
        return "It takes no options."
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *map(_row, shown)])


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        if parameter.metavar:
            names += f" `{parameter.metavar}`"
    text = (parameter.help or "–").replace("|", r"\|").replace("<", "&lt;")
    default = "required" if parameter.required else _default(parameter.default)
    choices = parameter.default
    if isinstance(choices, enum.Enum):
        text += " One of " + ", ".join(f"`{each.value}`" for each in type(choices)) + "."
    return f"| {names} | {default} | {text} |"


def _default(value: Any) -> str:
    if value is None or value is False:
        return "–"
    if isinstance(value, enum.Enum):
        value = value.value
    return f"`{value}`"


def updated(text: str, commands: dict[str, Any]) -> str:
    """Return the page with the tables of these commands.

    Raises :class:`SystemExit` for a place whose verb is gone.
    """
    missing = dict(commands)

    def fill(place: re.Match[str]) -> str:
        verb = place["verb"]
        if verb not in commands:
            raise SystemExit(f"{PAGE.name}: there is no verb {verb!r} any more; strike its place")
        missing.pop(verb, None)
        return _place(verb, commands[verb])

    text = _PLACE.sub(fill, text)
    for verb, command in missing.items():
        text += f"\n## {verb}\n\n{' '.join((command.help or '').split())}\n\n"
        text += _place(verb, command) + "\n"
    return text


def _place(verb: str, command: Any) -> str:
    return f"<!-- options: {verb} -->\n\n{table(command)}\n\n{_END}"


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), verbs()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
