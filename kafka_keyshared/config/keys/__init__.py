"""Key functions for headers, JSON or Avro fields, and user functions.

Each ``from_...`` returns a *key function*. It takes a record and returns the key as bytes, or None
for a null key. It raises :class:`~kafka_keyshared.model.Undecodable` for a record that has no
readable key and never will have one. It raises :class:`~kafka_keyshared.model.Retry` while the key
cannot be read yet, and :class:`~kafka_keyshared.model.UnknownFormat` for a value that it cannot
judge. The owner calls it once for each received record, in its own thread, so a wait in it blocks
everything.
"""

from kafka_keyshared.config.keys.avro import from_avro
from kafka_keyshared.config.keys.settings import key_function, parse_key
from kafka_keyshared.config.keys.sources import from_callable, from_header, from_json
from kafka_keyshared.config.keys.values import key_bytes
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.model import Undecodable, UnknownFormat

__all__ = [
    "KeyOf",
    "Undecodable",
    "UnknownFormat",
    "from_avro",
    "from_callable",
    "from_header",
    "from_json",
    "key_bytes",
    "key_function",
    "parse_key",
]
