"""Ids of simulated topics."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b


def topic_id(topic: str, times_made: int) -> str:
    """Return the id of a topic that was created ``times_made`` times, in Kafka's form."""
    raw = blake2b(f"{topic} {times_made}".encode(), digest_size=16).digest()
    return urlsafe_b64encode(raw).decode().rstrip("=")
