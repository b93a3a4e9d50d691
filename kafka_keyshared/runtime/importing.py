"""A program that is imported for what it names must not begin to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_keyshared.errors import ConfigError

# No ContextVar: a thread that the imported module starts has to see it as well.
_imports: list[str] = []


@contextmanager
def importing(spec: str) -> Iterator[None]:
    """Say that ``spec`` is being imported; nothing runs meanwhile."""
    _imports.append(spec)
    try:
        yield
    finally:
        _imports.pop()


def refuse_while_imported(call: str) -> None:
    """Raise :class:`ConfigError` while the command line imports a program that does ``call``.

    Importing a program without a guard runs it: ``keyshared doctor``, which promises to join no
    group, would join it and process what is there.
    """
    if _imports:
        raise ConfigError(
            f"{call} is called while the module is imported: put it under "
            "if __name__ == '__main__', so that importing runs nothing"
        )
