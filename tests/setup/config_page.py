"""Writes the tables of docs/reference/configuration.md from what the package accepts and refuses.

``python tests/setup/config_page.py`` puts each table between its two comments
(:mod:`tests.setup.page_tables`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup.page_tables import filled, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"


def settings() -> str:
    """Return the table of all settings."""
    from kafka_keyshared.config.environment import CLIENT
    from kafka_keyshared.config.fields import fields

    rows = []
    for field in fields().values():
        variable = f"{CLIENT}…" if field.name == "kafka" else field.env
        names = [f"`{each}`" for each in (variable, field.flag) if each]
        allowed = field.allowed.removesuffix(", or leave it out")
        default = "–" if field.default in (None, [], {}) else f"`{json.dumps(field.default)}`"
        how = "<br>".join(names) or "–"
        rows.append((f"`{field.name}`", allowed, default, how, field.meaning))
    return table(("setting", "may be", "default", "variable, flag", "meaning"), rows)


def defaults() -> str:
    """Return the table of the client's settings for which this package has a default of its own."""
    from kafka_keyshared.config.client import DEFAULTS_AND_REASONS

    rows = [
        (f"`{name}`", f"`{json.dumps(value)}`", reason)
        for name, (value, reason) in DEFAULTS_AND_REASONS.items()
    ]
    return table(("setting", "default", "because"), rows)


def refused() -> str:
    """Return the table of the client's settings that are refused."""
    from kafka_keyshared.config.client import REFUSED

    rows = [
        (
            f"`{each.setting}`",
            each.values,
            "environment, flags" if each.injected else "everywhere",
            f"{each.why}; {each.cure}",
        )
        for each in REFUSED
    ]
    return table(("setting", "value", "refused in", "because"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "defaults": defaults,
    "refused": refused,
}


def updated(text: str) -> str:
    """Return the page with its tables as the package has them now; see :func:`filled`."""
    return filled(PAGE.name, text, TABLES)


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
