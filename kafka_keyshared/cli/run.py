"""``keyshared run``: a handler from a file, run until a signal."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.audit_log import audit_log as opened_log
from kafka_keyshared.cli.audit_log import log_folder
from kafka_keyshared.cli.output import start_logging
from kafka_keyshared.cli.output_sinks import checked_place, outputs_to, require_here
from kafka_keyshared.cli.run_progress import StatusLine
from kafka_keyshared.cli.settings import client_settings, file_here, load_object
from kafka_keyshared.cli.status_line import Live, live_on_terminal
from kafka_keyshared.cli.weights import read_weights
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.client.standalone import refused
from kafka_keyshared.config import (
    Fault,
    Layers,
    from_flags,
    merge,
    package_variables,
    refuse,
    session_seconds,
    sources,
    starts_at_beginning,
)
from kafka_keyshared.config.worker_options import PROCESS
from kafka_keyshared.core.records.lane_identity import NULL_KEY, lane_by
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.handling.outputs import Take, outputs_taken, place_of
from kafka_keyshared.lab.demo.ledgers import on_dead_letter, on_dropped
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, Undecodable, UnknownFormat
from kafka_keyshared.observability.audit.ledger import own_key
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.observability.audit.processed import TOPIC, ProcessedLog

log = log_of("kafka_keyshared.cli")


START = "auto.offset.reset"
EARLIEST = "earliest"


def run_verb(
    arguments: RunArguments,
    log_level: str = "info",
    log_format: str = "text",
    audit_log: str | None = None,
    outputs: str | None = None,
) -> int:
    """Build the app and run it in this thread.

    ``audit_log`` is the destination of processed-log rows, ``outputs`` that of handler outputs.
    """
    start_logging(log_level, log_format)
    if audit_log is not None and not audit_log.startswith(TOPIC):
        log_folder(audit_log)
    if outputs is not None:
        require_here(place_of(outputs))
    target = load_object(arguments.handler or "", arguments.app_dir)
    layers = Layers({}, [], {}, {})
    live, shown = live_on_terminal()
    if isinstance(target, KeyShared):
        app = target
        layers = settle_app(app, arguments, audit_log, outputs) or layers
    else:
        layers = layer(arguments)
        app = build(layers, live)
        app.handler(target)
    try:
        require_broker(app.conf)
    except ConfigError as error:
        raise layers.with_origins(error) from error
    try:
        with ExitStack() as stack:
            if outputs is not None:
                place = checked_place(outputs, app.conf, app.topics)
                # Inside the audited call, so that the log counts an unwritten output as a failure.
                target = hand_out(app, target, stack.enter_context(outputs_to(place, app.conf)))
            if audit_log is not None:
                write_down(app, target, stack.enter_context(opened_log(audit_log, app.conf)))
            stack.enter_context(shown)
            return app.run()
    except KafkaException as error:
        if error.args[0].code() == KafkaError._INVALID_ARG:
            raise refused(error) from error
        raise KeySharedError(f"the Kafka client failed: {error.args[0]}") from error


def write_down(app: KeyShared, handler: Callable[..., Any], ledger: ProcessedLog) -> None:
    """Make the app report the outcome of each record to the ledger."""
    ledger.key_of = ordered_by(app)
    if app.options.pool == PROCESS:
        app.hooks = replace(app.hooks, called=ledger.called)
    else:
        app.handler(audited(handler, ledger))
    app.hooks = replace(app.hooks, dead_lettered=on_dead_letter(ledger), dropped=on_dropped(ledger))


def hand_out(app: KeyShared, handler: Callable[..., Any], take: Take) -> Callable[..., Any]:
    """Pass the handler's outputs to ``take``; return the handler that does so."""
    if app.options.pool == PROCESS:
        app.hooks = replace(app.hooks, outputs=take)
        return handler
    if app.options.tracing:
        from kafka_keyshared.executors.handling.tracing import taking  # it needs an extra

        take = taking(take)
    handler = outputs_taken(handler, take)
    app.handler(handler)
    return handler


def ordered_by(app: KeyShared) -> Callable[[Record], bytes | None]:
    """Return a function for the key that determines a record's order; None means no order."""
    key_of, one_lane = app.subscription.key_of or own_key, app.subscription.null_keys == "one-lane"

    def key(record: Record) -> bytes | None:
        try:
            found = key_of(record)
        # The record runs nevertheless, because the policy treats it as a null key.
        except (Undecodable, UnknownFormat):
            found = None
        # The one lane of null keys has its lane's name here, because no record has that as a key.
        return lane_by(record, NULL_KEY, "topic")[2] if found is None and one_lane else found

    return key


def settle_app(
    app: KeyShared,
    arguments: RunArguments,
    audit_log: str | None = None,
    outputs: str | None = None,
) -> Layers | None:
    """Apply the settings of ``--config`` and of the environment to an app that is code.

    Without ``--config`` none is applied, and environment variables get a warning. Returns the
    applied settings. Raises :class:`ConfigError` for flags that the app would ignore, and for
    settings that cannot be used.
    """
    refuse_flags_beside_app(arguments, audit_log, outputs)
    if arguments.config is not None:
        layers = merge(sources(arguments.config))
        refuse(map(layers.explained, layers.faults))
        try:
            app.override(layers, str(arguments.handler))
        except ConfigError as error:
            raise layers.with_origins(error) from error
        return layers
    if variables := package_variables(os.environ):
        log.warning(
            "%s has its own settings; the environment variables %s have an effect only if the app "
            "reads them (kafka_keyshared.config.layered). With --config FILE the file and the "
            "environment override its settings",
            arguments.handler,
            ", ".join(sorted(variables)),
        )
    return None


def refuse_flags_beside_app(
    arguments: RunArguments, audit_log: str | None = None, outputs: str | None = None
) -> None:
    """Raise :class:`ConfigError` for flags that an app with its own settings would ignore."""
    flags = {
        "-b": arguments.bootstrap,
        "-t": arguments.topics,
        "-g": arguments.group,
        "--workers": arguments.workers,
        "--key": arguments.key,
        "--dlq": arguments.dlq,
        "--dlq-create": arguments.dlq_create,
        "--attempts": arguments.attempts,
        "--on-exhausted": arguments.on_exhausted,
        "--routing": arguments.routing,
        "--ring-weights": arguments.ring_weights,
        "--on-unmatched": arguments.on_unmatched,
        "--unblocking-interval": _said(arguments.unblocking_interval),
        "--new-workers-wait": arguments.new_workers_wait,
        "--from-beginning": arguments.from_beginning,
        "-X": arguments.client,
        "--http-port": _said(arguments.http_port),
        "--console-port": _said(arguments.console_port),
        "--audit-log": audit_log,
        "--outputs": outputs,
    }
    if given := [name for name, value in flags.items() if value]:
        raise ConfigError(
            f"{arguments.handler} is a KeyShared app with its own settings; leave out "
            f"{', '.join(given)}, give them in a file with --config, which goes before its own, "
            "or name a handler instead"
        )


def _said(number: float | None) -> str | None:
    """Return a number as text, so that a given 0 counts as given."""
    return None if number is None else str(number)


def gather(arguments: RunArguments) -> Layers:
    """Merge file, environment and flags; mistakes in them are in ``faults``."""
    given: dict[str, tuple[Any, str]] = {
        "bootstrap": (arguments.bootstrap, "-b"),
        "group": (arguments.group, "-g"),
        "topics": (arguments.topics or None, "-t"),
        "workers": (arguments.workers, "--workers"),
        "key": (arguments.key, "--key"),
        "dlq": (arguments.dlq, "--dlq"),
        "dlq_create": (arguments.dlq_create or None, "--dlq-create"),
        "retry.attempts": (arguments.attempts, "--attempts"),
        "on_exhausted": (arguments.on_exhausted, "--on-exhausted"),
        "routing": (arguments.routing, "--routing"),
        "weights": (read_weights(arguments.ring_weights), "--ring-weights"),
        "on_unmatched": (arguments.on_unmatched, "--on-unmatched"),
        "unblocking_interval": (arguments.unblocking_interval, "--unblocking-interval"),
        "new_workers_wait": (arguments.new_workers_wait or None, "--new-workers-wait"),
        "http_port": (arguments.http_port, "--http-port"),
        "console_port": (arguments.console_port, "--console-port"),
    }
    client = client_settings(arguments.client)
    flags = [from_flags(given, client)]
    if arguments.from_beginning:
        if client.get(START, EARLIEST) != EARLIEST:
            raise ConfigError(f"--from-beginning and -X {START}={client[START]}: give one of them")
        flags.append(from_flags({}, {START: EARLIEST}, "--from-beginning"))
    path = arguments.config
    if path is None and (path := file_here()) is not None:
        log.info("using the settings of %s in this folder", path)
    return merge([*sources(path), *flags])


def layer(arguments: RunArguments) -> Layers:
    """Merge file, environment and flags; the later one wins.

    Raises :class:`ConfigError` with all settings that cannot be used.
    """
    layers = gather(arguments)
    layers.check()
    return layers


def missing(layers: Layers) -> list[Fault]:
    """Return the required settings that are missing."""
    needed = (
        ("bootstrap", layers.conf.get("bootstrap.servers"), "broker", "-b host:port"),
        ("group", layers.conf.get("group.id"), "consumer group", "-g NAME"),
        ("topics", layers.topics, "topic", "-t NAME"),
    )
    return [
        Fault(
            (name,),
            f"no {what} is named: give {flag}, {name} in the file, or KEYSHARED_{name.upper()}",
        )
        for name, value, what, flag in needed
        if not value
    ]


def build(layers: Layers, live: Live | None = None) -> KeyShared:
    """Return the app with these settings; raise :class:`ConfigError` for missing ones."""
    refuse(missing(layers))
    from_start = starts_at_beginning(layers.conf)
    status = StatusLine(from_start=from_start, session=session_seconds(layers.conf), live=live)
    try:
        app = KeyShared(layers.conf, layers.topics, hooks=Hooks(stepped=status), **layers.options)
    except ConfigError as error:
        raise layers.with_origins(error) from error
    app.layers = layers
    return app
