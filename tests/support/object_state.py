"""Everything that an object holds, as a value that can be compared with what it holds later."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None), enum.Enum, type, range)

LONG = 1_000
"""Lists longer than this, such as tables by slot, are compared by which objects they hold."""


def frozen(thing: Any) -> Any:
    """Return all that can be reached from a thing, except functions: two are equal if that is."""
    return _Freezing().of(thing)


class _Freezing:
    def __init__(self) -> None:
        # Kept alive, so that no other object gets the same id meanwhile.
        self._seen: dict[int, tuple[int, Any]] = {}

    def of(self, thing: Any) -> Any:
        """Return the value of one thing; of one that was met before, which that was."""
        if isinstance(thing, _PLAIN):
            return thing
        if id(thing) in self._seen:
            return f"^{self._seen[id(thing)][0]}"
        self._seen[id(thing)] = len(self._seen), thing
        return type(thing).__name__, self._held(thing), self._attributes(thing)

    def _held(self, thing: Any) -> list[Any]:
        if isinstance(thing, Mapping):
            return [(self.of(key), self.of(value)) for key, value in thing.items()]
        if isinstance(thing, Set):
            return sorted(repr(self.of(each)) for each in thing)
        if not isinstance(thing, Sequence | deque):
            return []
        if len(thing) > LONG:
            return [id(each) for each in thing]
        return [self.of(each) for each in thing]

    def _attributes(self, thing: Any) -> list[tuple[str, Any]]:
        if type(thing).__module__ in ("builtins", "itertools", "functools", "random"):
            return []
        found = dict(getattr(thing, "__dict__", {}))
        for kind in type(thing).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if hasattr(thing, name):
                    found[name] = getattr(thing, name)
        return [(name, self.of(value)) for name, value in found.items()]
