"""The configuration file: its structure, and its JSON schema.

Editors and other programs use the schema.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kafka_keyshared.config.options import Options

KAFKA = "kafka"
"""The table of the client's settings."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CLIENT = "ClientSettings"
_NOTHING = {"type": "null"}


class FileConfig(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A complete configuration: the options, the topics, and the client's settings."""

    topics: Annotated[
        list[Annotated[str, Meta(min_length=1)]],
        Meta(
            description="Topics to read. A name that begins with ^ is a regular expression.",
            extra={"flag": "-t", "allowed": "a list of topic names"},
        ),
    ] = msgspec.field(default_factory=list)
    group: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Consumer group, the client's `group.id`.",
            extra={"flag": "-g", "client": "group.id", "allowed": "the name of a group"},
        ),
    ] = None
    bootstrap: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Addresses of brokers, the client's `bootstrap.servers`.",
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


def schema() -> dict[str, Any]:
    """Return the schema of a TOML file.

    It has the shape of the client's settings but not their names, which depend on the installed
    client.
    """
    made = msgspec.json.schema(FileConfig)
    definitions = {name: _of_toml(each) for name, each in made["$defs"].items()}
    whole = definitions.pop(FileConfig.__name__)
    # TOML reads a name without quotes, sasl.password, as a table in a table.
    inner = {"$ref": f"#/$defs/{_CLIENT}"}
    scalar = {"type": ["string", "number", "boolean"]}
    definitions[_CLIENT] = {"type": "object", "additionalProperties": {"anyOf": [scalar, inner]}}
    whole["properties"][KAFKA] |= {"additionalProperties": {"anyOf": [scalar, inner]}}
    return {"$schema": DIALECT, **whole, "title": "keyshared.toml", "$defs": definitions}


def _of_toml(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a structure without null, which TOML does not have."""
    return {**schema, "properties": {name: _field(f) for name, f in schema["properties"].items()}}


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in schema.items() if (name, value) != ("default", None)}
    if "anyOf" in own:
        kinds = [kind for kind in own["anyOf"] if kind != _NOTHING]
        own |= {"anyOf": kinds} if len(kinds) > 1 else own.pop("anyOf") and kinds[0]
    if "enum" in own:
        own["enum"] = [value for value in own["enum"] if value is not None]
    return own
