"""Writes the tables of docs/reference/configuration.md from what the package accepts and refuses.

``python tests/setup/config_page.py`` puts each table between its two comments,
``<!-- table: … -->`` and ``<!-- end of table -->``. What is written around them is left as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"
_END = "<!-- end of table -->"
_PLACE = re.compile(r"<!-- table: (?P<name>[\w ]+) -->\n.*?" + _END, re.DOTALL)


def settings() -> str:
    """Return the table of all settings."""
    from kafka_keyshared.config.environment import CLIENT
    from kafka_keyshared.config.fields import fields

    rows = []
    for field in fields().values():
        names = [f"`{each}`" for each in (field.env or f"{CLIENT}…", field.flag) if each]
        allowed = field.allowed.removesuffix(", or leave it out")
        default = "–" if field.default in (None, [], {}) else f"`{json.dumps(field.default)}`"
        rows.append((f"`{field.name}`", allowed, default, "<br>".join(names), field.meaning))
    return _table(("setting", "may be", "default", "variable, flag", "meaning"), rows)


def defaults() -> str:
    """Return the table of the client's settings for which this package has a default of its own."""
    from kafka_keyshared.config.client import DEFAULTS_AND_REASONS

    rows = [
        (f"`{name}`", f"`{json.dumps(value)}`", reason)
        for name, (value, reason) in DEFAULTS_AND_REASONS.items()
    ]
    return _table(("setting", "default", "because"), rows)


def refused() -> str:
    """Return the table of the client's settings that are refused."""
    from kafka_keyshared.config.refused import REFUSED

    rows = [
        (
            f"`{each.setting}`",
            each.values,
            "environment, flags" if each.injected else "everywhere",
            f"{each.why}; {each.cure}",
        )
        for each in REFUSED
    ]
    return _table(("setting", "value", "refused in", "because"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "defaults": defaults,
    "refused": refused,
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *(list(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: Any) -> str:
    # What stands between backquotes is shown as it is; elsewhere <topic> would be a tag.
    parts = re.split(r"(`[^`]*`|<br>)", str(text).replace("|", r"\|"))
    return "".join(
        part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts)
    )


def updated(text: str) -> str:
    """Return the page with its tables as the package has them now.

    Raises :class:`SystemExit` for a table that is nowhere on the page, and one that is none.
    """
    places = [place["name"] for place in _PLACE.finditer(text)]
    if sorted(places) != sorted(TABLES):
        raise SystemExit(f"{PAGE.name} has the tables {places}; it must have {list(TABLES)}")

    def fill(place: re.Match[str]) -> str:
        name = place["name"]
        return f"<!-- table: {name} -->\n\n{TABLES[name]()}\n\n{_END}"

    return _PLACE.sub(fill, text)


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
