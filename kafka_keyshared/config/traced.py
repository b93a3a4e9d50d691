"""Spans are made with a package that most installations do not have."""

from __future__ import annotations

from importlib.util import find_spec

from kafka_keyshared.config.options import Options
from kafka_keyshared.errors import ConfigError


def check_tracing(options: Options) -> None:
    """Raise :class:`ConfigError` where spans are asked for and cannot be made."""
    if not options.tracing:
        return
    if options.pool in ("pull", "split"):
        raise ConfigError(
            f"tracing=True and workers={options.workers!r}: a span is a call of a handler, and "
            "members ask for records themselves; leave it out"
        )
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        raise ConfigError(
            "tracing=True needs the package opentelemetry-api: install it with "
            'pip install "kafka-keyshared[tracing]"'
        )
