"""A complete configuration file: options, topics and client settings."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kafka_keyshared.config.options import Options


class FileConfig(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration as a whole: the options, what to read, and the client's settings."""

    topics: Annotated[
        list[Annotated[str, Meta(min_length=1)]],
        Meta(
            description="What to read; a name that begins with ^ is a regular expression.",
            extra={"flag": "-t", "allowed": "a list of topics' names"},
        ),
    ] = msgspec.field(default_factory=list)
    group: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="The consumer group, `group.id` to the client.",
            extra={"flag": "-g", "client": "group.id", "allowed": "the name of a group"},
        ),
    ] = None
    bootstrap: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Addresses of brokers, `bootstrap.servers` to the client.",
            extra={
                "flag": "-b",
                "client": "bootstrap.servers",
                "allowed": "host:port, several with commas between",
            },
        ),
    ] = None
    kafka: Annotated[
        dict[str, str | int | float | bool],
        Meta(description="Settings of the Kafka client.", extra={"flag": "-X"}),
    ] = msgspec.field(default_factory=dict)
