"""Former public names, each with its successor.

A former name is refused, and the refusal names the successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

FORMER_METHODS: Mapping[str, str] = {
    "drain": "quiesce",
    "lanes": "closed_keys",
    "release": "unblock",
}
"""Former methods of the app and of the admin client."""

FORMER_ORDERS: Mapping[str, str] = {"drain": "quiesce", "release": "unblock"}
"""Former orders of the HTTP API."""

FORMER_COMMANDS: Mapping[str, str] = {"drain": "quiesce", "ring": "routing"}
"""Former commands of the command line."""


FORMER_OPTIONS: Mapping[str, str] = {"--nobody": "--unassign"}
"""Former options of the command line that are no settings."""


class RefusesFormerNames:
    """Base of classes with renamed methods: a former name raises, and the error names the method.

    A class that has no method of the successor's name never had the former one either.
    """

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            error = f"{kind.__name__!r} object has no attribute {name!r}"
            now = FORMER_METHODS.get(name)
            if now is not None and hasattr(kind, now):
                error += f"; it is {now!r} now"
            raise AttributeError(error, name=name, obj=self)
