"""``keyshared advise``: topic sample and gain of more workers."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import msgspec

from kafka_keyshared.cli.advice.count import SampleCounts
from kafka_keyshared.cli.advice.model import advise
from kafka_keyshared.cli.advice.report import lines
from kafka_keyshared.cli.advice.sample import take
from kafka_keyshared.cli.advice.snippet import code
from kafka_keyshared.cli.app_settings import app_layers
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result
from kafka_keyshared.cli.run import layer, missing
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.client.standalone import address_of
from kafka_keyshared.config import Layers, make_options, refuse
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.config.keys.sampled import KeySample
from kafka_keyshared.errors import ConfigError


def _of_app(app: str, arguments: RunArguments) -> Layers:
    layers = app_layers(
        app, arguments.client, bootstrap_server=arguments.bootstrap, config=arguments.config
    )
    conf = layers.conf if arguments.group is None else layers.conf | {"group.id": arguments.group}
    key = {} if arguments.key is None else {"key": arguments.key}
    return replace(
        layers,
        conf=conf,
        topics=arguments.topics or layers.topics,
        options=layers.options | key,
    )


def advise_verb(
    arguments: RunArguments,
    ms_per_record: float,
    seconds: float,
    output: OutputFormat,
    app: str | None = None,
) -> int:
    """Sample, compute and print; ``app`` (MODULE:ATTR) replaces the other sources of settings."""
    for flag, value in (("--ms-per-record", ms_per_record), ("--seconds", seconds)):
        if value <= 0:
            raise ConfigError(f"{flag} {value:g}: give more than 0")
    layers = layer(arguments) if app is None else _of_app(app, arguments)
    refuse(each for each in missing(layers) if each.settings != ("group",))
    group = layers.conf.get("group.id")
    address = address_of(layers.conf)
    require_broker(layers.conf)
    write_note(
        f"reading {', '.join(layers.topics)} at {address} for {seconds:g} s at most; joins no "
        "group and writes nothing"
    )
    tally = SampleCounts()
    options = make_options(layers.options)
    key_of = subscription_settings(options).key_of
    keys = None if key_of is None else KeySample(key_of)
    sample = take(layers.conf, layers.topics, group, seconds, tally, progress=write_note, keys=keys)
    advice = advise(
        *(tally, sample),
        group=group,
        ms_per_record=ms_per_record,
        key=options.key,
        keys_seen={} if keys is None else keys.topics,
    )
    if advice.verdict in ("helps", "little"):
        advice.code = code(address, layers.topics, group, advice.workers, options.key)
    if output is OutputFormat.TABLE:
        sys.stdout.write("".join(f"{line}\n" for line in lines(advice)))
    else:
        found: dict[str, Any] = msgspec.to_builtins(advice)
        write_result(found, output, "advise")
    return 0
