"""``keyshared config``: schema, effective settings and their check."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.output import (
    OutputFormat,
    write_error,
    write_note,
    write_result,
    write_table,
)
from kafka_keyshared.cli.run import build, gather, missing, refuse_flags_beside_app, settle_app
from kafka_keyshared.cli.settings import load_object
from kafka_keyshared.client.standalone import outsider
from kafka_keyshared.config import Fault, Options, SettingsError
from kafka_keyshared.config.client import without_effect
from kafka_keyshared.config.file import schema
from kafka_keyshared.config.show import effective_settings, program_layers
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.handlers import awaits, maker


def schema_verb() -> int:
    """Print the schema."""
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
    return 0


def show_verb(arguments: RunArguments, output: OutputFormat) -> int:
    """Print every effective setting and its origin; raise for settings that a run would refuse."""
    target = _target(arguments)
    if isinstance(target, KeyShared):
        settle_app(target, arguments)
        own = program_layers(target.options, target.conf, target.topics, str(arguments.handler))
        layers = target.layers or own
    else:
        layers = gather(arguments)
        layers.check()
    settings, client = effective_settings(layers)
    parts = {"settings": settings, "kafka": client}
    if output is not OutputFormat.TABLE:
        result = {
            part: {name: each._asdict() for name, each in values.items()}
            for part, values in parts.items()
        }
        write_result(result, output, "config")
        return 0
    for part, values in parts.items():
        rows = [(name, _text(each.value), each.origin) for name, each in values.items()]
        write_table(part, {"name": "left", "value": "left", "from": "left"}, rows)
    return 0


def _text(value: Any) -> str:
    if value in (None, []):
        return "not set"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _target(arguments: RunArguments) -> Any:
    """Return the object that the command line names, None if it names none."""
    if arguments.handler is None:
        return None
    # Output of the module during its import is not part of this command's result.
    with contextlib.redirect_stdout(sys.stderr):
        target = load_object(arguments.handler, arguments.app_dir)
    if isinstance(target, KeyShared):
        refuse_flags_beside_app(arguments)
    return target


def check_verb(arguments: RunArguments, output: OutputFormat) -> int:
    """Print everything that a run would refuse; return 0 without a fault, else 2."""
    faults, conf = _found(arguments)
    error = SettingsError(faults)
    notes = [f"{name} has an effect on producers only" for name in without_effect(conf)]
    if output is not OutputFormat.TABLE:
        told = [
            {"settings": list(each.settings), "text": each.text, "origins": dict(each.origins)}
            for each in faults
        ]
        said = [*error.notes, *notes]
        write_result({"ok": not faults, "faults": told, "notes": said}, output, "config check")
    elif faults:
        write_error(str(error))
    else:
        sys.stdout.write("ok: the settings are valid; no broker was queried\n")
    for note in notes:
        write_note(f"note: {note}")
    return ConfigError.exit_code if faults else 0


def _found(arguments: RunArguments) -> tuple[list[Fault], Mapping[str, Any]]:
    faults: list[Fault] = []
    target = _caught(faults, lambda: _target(arguments), ("handler",))
    if isinstance(target, KeyShared):
        _caught(faults, lambda: settle_app(target, arguments))
        _caught(faults, lambda: _make_client(target.conf))
        return faults, target.conf
    layers = _caught(faults, lambda: gather(arguments))
    if layers is not None:
        _caught(faults, layers.check)
        faults += missing(layers)
    if target is not None:
        pool = Options().pool if layers is None else layers.pool_for(awaited=awaits(target))
        _caught(faults, lambda: maker(target, pool), ("handler",))
    if layers is None or faults:
        return faults, {} if layers is None else layers.conf
    app = _caught(faults, lambda: build(layers))
    if app is not None:
        told: list[Fault] = []
        _caught(told, lambda: _make_client(app.conf))
        faults += map(layers.explained, told)
    return faults, layers.conf


def _caught(faults: list[Fault], act: Callable[[], Any], settings: tuple[str, ...] = ()) -> Any:
    try:
        return act()
    except SettingsError as error:
        faults += error.faults
    except ConfigError as error:
        faults.append(Fault(settings, str(error)))
    return None


def _make_client(conf: Mapping[str, Any]) -> None:
    """Make a client without brokers, because only a client checks certificates and mechanisms."""
    addresses = ("bootstrap.servers", "metadata.broker.list")
    outsider({name: conf[name] for name in conf if name not in addresses}, []).close()
