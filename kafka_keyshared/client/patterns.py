"""Topic patterns (``^…``), matched as the client matches them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_keyshared.errors import ConfigError

_CLASSES = {
    "[:alpha:]": "a-zA-Z",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
}


INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The cluster's own topics. In the client a pattern matches them like any other topic."""


class BadPatternError(ConfigError):
    """A topic pattern that is not a regular expression."""


def is_pattern(topic: str) -> bool:
    """Return whether the client reads the name as a regular expression."""
    return topic.startswith("^")


def matching(pattern: str, there: Iterable[str]) -> list[str]:
    """Return the topics that match a pattern (``^…``).

    Raises :class:`BadPatternError`. The client uses POSIX expressions. They mean the same as
    Python's for the characters in topic names, except for their character classes.
    """
    expression = pattern
    for posix, range_ in _CLASSES.items():
        expression = expression.replace(posix, range_)
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise BadPatternError(
            f"{pattern!r} is no regular expression: {error}; a name with ^ at its beginning is one"
        ) from error
    return sorted(name for name in there if compiled.search(name))


def visible(there: Iterable[str]) -> list[str]:
    """Return the topics that are not the cluster's own, such as ``__consumer_offsets``."""
    return [name for name in there if not name.startswith("__")]


def topics_meant(wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    """Return the existing topics that match the names and patterns."""
    names = list(there)
    found: set[str] = set()
    for topic in wanted:
        found.update(matching(topic, names) if is_pattern(topic) else [topic])
    return sorted(found)
