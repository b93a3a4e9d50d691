"""Topic patterns (``^…``), as far as we have to understand what the client makes of them."""

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
"""The topics that a cluster keeps for itself. To the client a pattern means them like any other."""


class BadPatternError(ConfigError):
    """A topic pattern that is no regular expression."""


def is_pattern(topic: str) -> bool:
    """Say whether the client takes the name for a regular expression."""
    return topic.startswith("^")


def matching(pattern: str, there: Iterable[str]) -> list[str]:
    """Return the topics that a pattern (``^…``) means.

    Raises :class:`BadPatternError`. The client's expressions are POSIX ones, which mean the same
    for what is used in names of topics, but for their classes of characters.
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
    """Return the names of the topics that names and patterns mean, given those that are there."""
    names = list(there)
    found: set[str] = set()
    for topic in wanted:
        found.update(matching(topic, names) if is_pattern(topic) else [topic])
    return sorted(found)
