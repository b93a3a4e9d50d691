"""JSON Schema of the configuration file, generated from the structure.

Editors and other programs use it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kafka_keyshared.config.file import FileConfig
from kafka_keyshared.config.layers import KAFKA

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CLIENT = "ClientSettings"
_NOTHING = {"type": "null"}


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
