"""``keyshared run``: a handler from a file, run until a signal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaException

from kafka_keyshared.cli.output import start_logging
from kafka_keyshared.cli.reach import is_refusal, refused, require_broker
from kafka_keyshared.cli.settings import client_settings, load_object
from kafka_keyshared.cli.status import StatusLine
from kafka_keyshared.config import FileConfig, Options, load_file
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.runtime.service import Hooks, KeyShared

FROM_START = ("earliest", "smallest", "beginning")


@dataclass(frozen=True, slots=True)
class RunArguments:
    """What the command line said; None and empty where it said nothing."""

    handler: str | None
    bootstrap: str | None
    topics: list[str]
    group: str | None
    workers: str | None
    dlq: str | None
    dlq_create: bool
    config: Path | None
    app_dir: Path
    client: list[str]
    http_port: int | None = None


@dataclass(frozen=True, slots=True)
class Layers:
    """File and flags put together; ``origins`` says where each setting that was given came from."""

    conf: dict[str, Any]
    topics: list[str]
    options: dict[str, Any]
    origins: dict[str, str]

    def told(self, error: ConfigError) -> ConfigError:
        """Return the error with the origin of the settings that it names."""
        text = str(error)
        named = [
            f"{name} is from {origin}"
            for name, origin in self.origins.items()
            if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text)
        ]
        return type(error)(f"{text} ({', '.join(named)})") if named else error


def run_verb(arguments: RunArguments) -> int:
    """Build the app and run it in this thread."""
    start_logging()
    target = load_object(arguments.handler or "", arguments.app_dir)
    layers = Layers({}, [], {}, {})
    if isinstance(target, KeyShared):
        refuse_flags_beside_app(arguments)
        app = target
    else:
        layers = layer(arguments)
        app = build(layers)
        app.handler(target)
    try:
        require_broker(app.conf)
    except ConfigError as error:
        raise layers.told(error) from error
    try:
        return app.run()
    except KafkaException as error:
        if is_refusal(error):
            raise refused(error) from error
        raise KeySharedError(f"the Kafka client failed: {error.args[0]}") from error


def refuse_flags_beside_app(arguments: RunArguments) -> None:
    """Raise :class:`ConfigError` for flags that an app with its own settings would not heed."""
    flags = {
        "-b": arguments.bootstrap,
        "-t": arguments.topics,
        "-g": arguments.group,
        "--workers": arguments.workers,
        "--dlq": arguments.dlq,
        "--dlq-create": arguments.dlq_create,
        "--config": arguments.config,
        "-X": arguments.client,
        "--http-port": None if arguments.http_port is None else str(arguments.http_port),
    }
    if given := [name for name, value in flags.items() if value]:
        raise ConfigError(
            f"{arguments.handler} is a KeyShared app with its own settings; leave out "
            f"{', '.join(given)}, or name a handler instead"
        )


def layer(arguments: RunArguments) -> Layers:
    """Put file and flags together; a flag wins over the file."""
    file, path = _read(arguments.config), str(arguments.config)
    conf: dict[str, Any] = dict(file.kafka)
    origins = dict.fromkeys(conf, f"[kafka] in {path}")
    options = {name: getattr(file, name) for name in type(file.options()).__struct_fields__}
    unset = Options()
    origins |= {name: path for name in options if options[name] != getattr(unset, name)}
    options["retry"] = msgspec.to_builtins(file.retry)
    flags = {
        "workers": (arguments.workers, "--workers"),
        "dlq": (True if arguments.dlq == "auto" else arguments.dlq, "--dlq"),
        "dlq_create": (arguments.dlq_create or None, "--dlq-create"),
        "http_port": (arguments.http_port, "--http-port"),
    }
    for name, (value, flag) in flags.items():
        if value is not None:
            options[name], origins[name] = value, flag
    for name, given, flag, in_file in (
        ("bootstrap.servers", arguments.bootstrap, "-b", file.bootstrap),
        ("group.id", arguments.group, "-g", file.group),
    ):
        if value := given or in_file:
            conf[name], origins[name] = value, flag if given else path
    own = client_settings(arguments.client)
    conf |= own
    origins |= dict.fromkeys(own, "-X")
    return Layers(conf, arguments.topics or file.topics, options, origins)


def build(layers: Layers) -> KeyShared:
    """Return the app with these settings; raise :class:`ConfigError` for what is missing."""
    if not layers.conf.get("bootstrap.servers"):
        raise ConfigError("no broker is named: give -b host:port, or bootstrap in the file")
    if not layers.conf.get("group.id"):
        raise ConfigError("no consumer group is named: give -g NAME, or group in the file")
    if not layers.topics:
        raise ConfigError("no topic is named: give -t NAME, or topics in the file")
    status = StatusLine(from_start=str(layers.conf.get("auto.offset.reset")) in FROM_START)
    try:
        return KeyShared(layers.conf, layers.topics, hooks=Hooks(stepped=status), **layers.options)
    except ConfigError as error:
        raise layers.told(error) from error


def _read(path: Path | None) -> FileConfig:
    if path is None:
        return FileConfig()
    try:
        return load_file(path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML, which is text in UTF-8: {error}") from error
