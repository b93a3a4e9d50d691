"""What nobody may read in an output, a log or an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "********"
_SECRET = re.compile(
    r"password|passphrase|secret|token|key\.pem|private\.key|^ssl_key$|^sasl\.oauthbearer\.config$",
    re.IGNORECASE,
)
_LEAST = 3
"""Shorter secrets are not looked for in texts: they would be found everywhere."""


def is_secret(name: str, value: Any) -> bool:
    """Say whether a setting of the client is kept from sight."""
    # A certificate's file may have its key in it as well.
    return _SECRET.search(name) is not None or "PRIVATE KEY" in str(value)


def masked(name: str, value: Any) -> Any:
    """Return a client's setting as it may be shown."""
    return MASK if is_secret(name, value) and value not in ("", None) else value


def scrubbed(text: str, conf: Mapping[str, Any]) -> str:
    """Return a text without the secrets of this configuration."""
    for name, value in conf.items():
        secret = str(value)
        if is_secret(name, value) and len(secret) >= _LEAST:
            text = text.replace(secret, MASK).replace(repr(secret)[1:-1], MASK)
    return text
