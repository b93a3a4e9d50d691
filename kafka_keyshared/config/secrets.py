"""Masking of secrets in outputs, logs and errors."""

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
"""Minimum length of a secret to search for in texts. A shorter one would match everywhere."""


def is_secret(name: str, value: Any) -> bool:
    """Return whether a client setting is secret."""
    # A certificate file may also contain its key.
    return _SECRET.search(name) is not None or "PRIVATE KEY" in str(value)


def mask(name: str, value: Any) -> Any:
    """Return a client setting with a secret value masked."""
    return MASK if is_secret(name, value) and value not in ("", None) else value


def scrub(text: str, conf: Mapping[str, Any]) -> str:
    """Return a text without the secrets of this configuration."""
    for name, value in conf.items():
        secret = str(value)
        if is_secret(name, value) and len(secret) >= _LEAST:
            text = text.replace(secret, MASK).replace(repr(secret)[1:-1], MASK)
    return text
