"""Consumer settings that producers, admin clients and other readers share."""

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
        # Nothing reads the statistics of these clients.
        "statistics.interval.ms",
        # The code that it names was reviewed for the consumer only.
        "plugin.library.paths",
    }
) - {"oauth_cb", "logger"}


def connection_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer for another client of the same user.

    Settings that only a consumer or only a producer uses are left out. So are the callbacks about
    the consumer itself. ``oauth_cb`` stays, because no connection opens without it, and ``logger``.
    A setting that this version does not know is shared: a client that does not use it logs a line.
    """
    return with_guarded_tokens(
        {name: value for name, value in conf.items() if name not in _NOT_SHARED}
    )
