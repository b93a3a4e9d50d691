"""Display form of a key for the status."""

from __future__ import annotations

KEY_CHARS = 80
"""Characters of a key that identify it and fit in a line."""


def key_text(key: bytes | None) -> str | None:
    """Return a truncated key for display: its text, or ``hex:…``, as the command line takes it."""
    if key is None:
        return None
    start = key[: 4 * KEY_CHARS]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        # A character split by the truncation does not make the key invalid text.
        if len(key) == len(start) or error.start < len(start) - 3:
            return f"hex:{start.hex()}"[:KEY_CHARS]
        text = start[: error.start].decode()
    return text[:KEY_CHARS]
