"""Settings of a consumer that its producers, admin clients and other readers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_keyshared.config.properties import CALLBACKS, CONSUMER_ONLY, PRODUCER
from kafka_keyshared.config.tokens import with_guarded_tokens

_NOT_SHARED = frozenset(
    {
        *CONSUMER_ONLY,
        *PRODUCER,
        *CALLBACKS,
        # Its statistics are read by nobody.
        "statistics.interval.ms",
        # The code that it names was reviewed for the consumer, once.
        "plugin.library.paths",
    }
) - {"oauth_cb", "logger"}


def connection_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer for another client of the same user.

    All are shared but those that only a consumer or only a producer heeds, and the callbacks about
    the consumer itself. ``oauth_cb`` stays, because no connection opens without it, and ``logger``.
    A setting that this version does not know is shared: a client that does not heed it logs a line.
    """
    return with_guarded_tokens(
        {name: value for name, value in conf.items() if name not in _NOT_SHARED}
    )
