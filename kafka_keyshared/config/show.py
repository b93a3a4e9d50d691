"""Settings in force with their origins, secrets masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kafka_keyshared.config.client import DEFAULTS, with_defaults
from kafka_keyshared.config.fields import fields
from kafka_keyshared.config.layers import Layers
from kafka_keyshared.config.options import Options
from kafka_keyshared.config.secrets import mask

DEFAULT = "default"


class Shown(NamedTuple):
    """A value and its origin. A secret is masked."""

    value: Any
    origin: str


def effective_settings(layers: Layers) -> tuple[dict[str, Shown], dict[str, Shown]]:
    """Return every setting of the structure, and the client settings that are not part of it."""
    settings = {}
    for name, field in fields().items():
        if field.env is None:
            continue
        if field.client is not None:
            value = layers.conf.get(field.client)
        elif name == "topics":
            value = layers.topics
        else:
            value = _at(layers.options, name, field.default)
        settings[name] = Shown(value, layers.origins.get(field.client or name, DEFAULT))
    own = {field.client for field in fields().values()}
    client = {
        name: Shown(_plain(mask(name, value)), layers.origins.get(name, DEFAULT))
        for name, value in sorted(with_defaults(layers.conf).items())
        if name not in own
    }
    return settings, client


def program_layers(
    options: Options, conf: Mapping[str, Any], topics: list[str], origin: str
) -> Layers:
    """Return the settings of an app that brings its own, as if ``origin`` had given them."""
    values = {name: _at(msgspec.to_builtins(options), name, None) for name in fields(Options)}
    given = {
        name: value for name, value in values.items() if value != fields(Options)[name].default
    }
    others = {name: value for name, value in conf.items() if name not in DEFAULTS}
    defaults = {name: with_defaults(others)[name] for name in DEFAULTS}
    own = {name: value for name, value in conf.items() if value != defaults.get(name)}
    origins = dict.fromkeys([*given, *own, "topics"], origin)
    return Layers(dict(conf), topics, msgspec.to_builtins(options), origins)


def _plain(value: Any) -> Any:
    """Return a printable value: a program may give functions, paths and loggers."""
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "__qualname__", None) or str(value)


def _at(table: Mapping[str, Any], name: str, default: Any) -> Any:
    first, dot, rest = name.partition(".")
    if first not in table:
        return default
    return _at(table[first], rest, default) if dot else table[first]
