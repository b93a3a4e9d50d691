"""``keyshared run``: a handler from a file, run until a signal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaException

from kafka_keyshared.cli.output import start_logging
from kafka_keyshared.cli.reach import is_refusal, refused, require_broker
from kafka_keyshared.cli.settings import client_settings, load_object
from kafka_keyshared.cli.status import StatusLine
from kafka_keyshared.config import FileConfig, load_file
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.runtime.service import Hooks, KeyShared

FROM_START = ("earliest", "smallest", "beginning")


@dataclass(frozen=True, slots=True)
class RunArguments:
    """What the command line said; None and empty where it said nothing."""

    handler: str
    bootstrap: str | None
    topics: list[str]
    group: str | None
    workers: str | None
    dlq: str | None
    dlq_create: bool
    config: Path | None
    app_dir: Path
    client: list[str]


def run_verb(arguments: RunArguments) -> int:
    """Build the app and run it in this thread."""
    start_logging()
    target = load_object(arguments.handler, arguments.app_dir)
    if isinstance(target, KeyShared):
        if given := _given(arguments):
            raise ConfigError(
                f"{arguments.handler} is a KeyShared app with its own settings; leave out "
                f"{', '.join(given)}, or name a handler instead"
            )
        app = target
    else:
        app = build(arguments)
        app.handler(target)
    require_broker(app.conf)
    try:
        return app.run()
    except KafkaException as error:
        if is_refusal(error):
            raise refused(error) from error
        raise KeySharedError(f"the Kafka client failed: {error.args[0]}") from error


def build(arguments: RunArguments) -> KeyShared:
    """Put file and flags together; a flag wins over the file."""
    file = _read(arguments.config)
    conf: dict[str, Any] = dict(file.kafka)
    if bootstrap := arguments.bootstrap or file.bootstrap:
        conf["bootstrap.servers"] = bootstrap
    if group := arguments.group or file.group:
        conf["group.id"] = group
    conf.update(client_settings(arguments.client))
    if not conf.get("bootstrap.servers"):
        raise ConfigError("no broker is named: give -b host:port, or bootstrap in the file")
    if not conf.get("group.id"):
        raise ConfigError("no consumer group is named: give -g NAME, or group in the file")
    topics = arguments.topics or file.topics
    if not topics:
        raise ConfigError("no topic is named: give -t NAME, or topics in the file")
    options = {name: getattr(file, name) for name in type(file.options()).__struct_fields__}
    options["retry"] = msgspec.to_builtins(file.retry)
    if arguments.workers is not None:
        options["workers"] = arguments.workers
    if arguments.dlq is not None:
        options["dlq"] = True if arguments.dlq == "auto" else arguments.dlq
    if arguments.dlq_create:
        options["dlq_create"] = True
    status = StatusLine(from_start=str(conf.get("auto.offset.reset")) in FROM_START)
    return KeyShared(conf, topics, hooks=Hooks(stepped=status), **options)


def _read(path: Path | None) -> FileConfig:
    if path is None:
        return FileConfig()
    try:
        return load_file(path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML, which is text in UTF-8: {error}") from error


def _given(arguments: RunArguments) -> list[str]:
    flags = {
        "-b": arguments.bootstrap,
        "-t": arguments.topics,
        "-g": arguments.group,
        "--workers": arguments.workers,
        "--dlq": arguments.dlq,
        "--dlq-create": arguments.dlq_create,
        "--config": arguments.config,
        "-X": arguments.client,
    }
    return [name for name, value in flags.items() if value]
