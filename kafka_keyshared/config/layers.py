"""Configuration layers: default < file < environment < flag.

Each layer is checked on its own: a fault counts even where a higher layer overrides the value.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kafka_keyshared.config import environment
from kafka_keyshared.config.client import conflict_faults, deadline_faults, setting_fault
from kafka_keyshared.config.core_settings import commit_policy, subscription_settings
from kafka_keyshared.config.fields import (
    convert_value,
    fields,
    flatten,
    from_text,
    nest,
    value_text,
)
from kafka_keyshared.config.file import KAFKA, FileConfig
from kafka_keyshared.config.option_checks import make_options
from kafka_keyshared.config.options import Options
from kafka_keyshared.config.properties import ALIASES
from kafka_keyshared.config.secrets import scrub
from kafka_keyshared.config.setting_faults import Fault, SettingsError, refuse
from kafka_keyshared.config.worker_options import default_workers
from kafka_keyshared.errors import ConfigError


@dataclass(slots=True)
class Layer:
    """The settings of one source, by name. ``client`` has the client's own settings."""

    settings: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def put(self, name: str, value: Any, origin: str) -> None:
        """Set an option of this package."""
        known = fields()[name]
        fits = convert_value(known, value, self.faults, f"from {origin}")
        if fits is msgspec.UNSET:
            return
        if known.client is not None:
            self.put_client(known.client, fits, origin)
        else:
            self.settings[name], self.origins[name] = fits, origin

    def put_client(self, name: str, value: Any, origin: str, *, injected: bool = False) -> None:
        """Set a setting of the client."""
        fault = setting_fault(name, value, injected=injected)
        if fault is not None:
            self.faults.append(fault._replace(origins={name: f"from {origin}"}))
        own = ALIASES.get(name, name)
        if self.client.get(own, value) != value:
            text = f"{own!r} is given twice, with different values: leave one out"
            origins = {own: f"from {self.origins[own]} and from {origin}"}
            self.faults.append(Fault((own,), text, origins))
        self.client[own], self.origins[own] = value, origin


@dataclass(frozen=True, slots=True)
class Layers:
    """All sources merged. ``origins`` names the source of each given setting.

    ``faults`` are those of the single sources. :meth:`check` finds faulty combinations.
    """

    conf: dict[str, Any]
    topics: list[str]
    options: dict[str, Any]
    origins: dict[str, str]
    faults: tuple[Fault, ...] = ()

    def pool_for(self, *, awaited: bool) -> str:
        """Return the pool kind for a handler, or the default kind if the options are invalid.

        ``awaited``: it is a coroutine function.
        """
        try:
            return make_options({"workers": default_workers(awaited=awaited), **self.options}).pool
        except ConfigError:
            return Options().pool

    def check(self) -> None:
        """Raise :class:`SettingsError` with every setting that cannot be used."""
        # Values that are wrong on their own would be reported twice.
        refuse(self.explained(each) for each in self.faults or self._combination_faults())

    def _combination_faults(self) -> Iterator[Fault]:
        """Yield the faults of settings that are valid one by one."""
        yield from conflict_faults(self.conf)
        try:
            options = make_options(self.options)
            yield from deadline_faults(options, self.conf)
            subscription_settings(options)
            commit_policy(options)
        except SettingsError as error:
            yield from error.faults
        except ConfigError as error:
            yield Fault((), str(error))

    def with_origins(self, error: ConfigError) -> ConfigError:
        """Return the error with the origin of the settings that it names, and without secrets."""
        if isinstance(error, SettingsError):
            return SettingsError(map(self.explained, error.faults))
        return type(error)(str(self.explained(Fault((), str(error)))))

    def explained(self, fault: Fault) -> Fault:
        """Return the fault with the origins of its settings, and without secrets."""
        named = fault.settings or [name for name in self.origins if _names(fault.text, name)]
        default = "the default"
        origins = fault.origins or {
            name: f"from {self.origins[name]}" if name in self.origins else default
            for name in named
        }
        # A single setting at its default is missing, and the text says so already.
        if list(origins.values()) == [default]:
            origins = {}
        return fault._replace(text=scrub(fault.text, self.conf), origins=origins)


def _names(text: str, setting: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(setting)}(?![\w.])", text) is not None


def merge(layers: Iterable[Layer]) -> Layers:
    """Merge sources. A later one wins."""
    conf: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    faults: list[Fault] = []
    for layer in layers:
        conf |= layer.client
        settings |= layer.settings
        origins |= layer.origins
        faults += layer.faults
    topics = settings.pop("topics", [])
    return Layers(conf, topics, nest(settings), origins, tuple(faults))


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with others laid over them. Tables are merged key by key."""
    return {
        name: overlay(below[name], above[name])
        if isinstance(below.get(name), Mapping) and isinstance(above.get(name), Mapping)
        else above.get(name, below.get(name))
        for name in {**below, **above}
    }


# --- the sources ---


def from_file(path: Path) -> Layer:
    """Return the layer of a TOML file. Raise :class:`ConfigError` for an unreadable one."""
    layer = Layer()
    values = _read(path)
    kafka = values.pop(KAFKA, {})
    for known, value in flatten(values, FileConfig, layer.faults, f"from {path}"):
        table = known.name.rpartition(".")[0]
        layer.put(known.name, value, f"[{table}] in {path}" if table else str(path))
    if not isinstance(kafka, Mapping):
        text = f"kafka={value_text(kafka)}: give a table with settings of the client"
        layer.faults.append(Fault((KAFKA,), text, {KAFKA: f"from {path}"}))
        return layer
    for name, value in _dotted(kafka):
        layer.put_client(name, value, f"[{KAFKA}] in {path}")
    return layer


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Return the layer of the environment."""
    layer = Layer()
    for variable, text in environment.package_variables(environ).items():
        if (known := environment.variables().get(variable)) is not None:
            layer.put(known.name, from_text(text.strip(), known.info), variable)
        elif variable.startswith(environment.CLIENT):
            name = environment.client_name(variable)
            layer.put_client(name, text, variable, injected=True)
            if text.endswith("\n") and "-----END" not in text:
                why = f"{name!r} ends with a line break, as `echo` without -n adds one: remove it"
                layer.faults.append(Fault((name,), why, {name: f"from {variable}"}))
        elif variable != environment.CONFIG:
            layer.faults.append(environment.unknown_variable(variable))
    return layer


def from_flags(
    given: Mapping[str, tuple[Any, str]], client: Mapping[str, str], flag: str = "-X"
) -> Layer:
    """Return the layer of the flags: name → (value, flag). A value None was not given."""
    layer = Layer()
    for name, (value, named) in given.items():
        if value is not None:
            typed = from_text(value, fields()[name].info) if isinstance(value, str) else value
            layer.put(name, typed, named)
    for name, text in client.items():
        layer.put_client(name, text, flag, injected=True)
    return layer


def sources(path: str | Path | None, environ: Mapping[str, str] | None = None) -> list[Layer]:
    """Return the layers of the file and the environment, the lower one first.

    The file is ``path``, else the one that ``KEYSHARED_CONFIG`` names, else none. ``environ`` is by
    default the process's own.
    """
    environ = os.environ if environ is None else environ
    path = environment.config_file(environ) if path is None else Path(path)
    return [*([] if path is None else [from_file(path)]), from_environment(environ)]


def layered(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Layers:
    """Return the settings of a file and of the environment, for a program to start from.

    Raises :class:`ConfigError` with every setting that cannot be used and its source. Example::

        settings = layered("keyshared.toml")
        app = KeyShared(settings.conf, settings.topics, **settings.options)
    """
    found = merge(sources(path, environ))
    found.check()
    return found


def load_file(path: str | Path) -> Layers:
    """Return the settings of a TOML file. Raise :class:`ConfigError` with all faults in it."""
    found = merge([from_file(Path(path))])
    found.check()
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give the path of a TOML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML, which is text in UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _dotted(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the client's settings. ``sasl.password`` without quotes is a table in a table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield before + name, value
