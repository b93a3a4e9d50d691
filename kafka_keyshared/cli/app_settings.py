"""Settings from an app, for clusters whose login needs code.

``oauth_cb`` is a function, so no flag, file or environment variable can give it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kafka_keyshared.cli.settings import client_settings, load_object
from kafka_keyshared.config import Layers
from kafka_keyshared.errors import ConfigError

NOT_BESIDE = "the app has its own settings; leave out one of the two"


def app_layers(spec: str, settings: Sequence[str], **others: object) -> Layers:
    """Return the settings of the app ``spec`` (MODULE:ATTR), with ``-X`` ``settings`` over them.

    ``others`` are flags that must not be given beside it. Raises :class:`ConfigError` for such a
    flag, for a failed import and for an object that is no app.
    """
    from kafka_keyshared.app.keyshared import KeyShared

    given = next((name for name, value in others.items() if value), None)
    if given is not None:
        raise ConfigError(f"--{given.replace('_', '-')} beside --app: {NOT_BESIDE}")
    # Output of the module during its import is not part of the command's result.
    with contextlib.redirect_stdout(sys.stderr):
        app = load_object(spec, Path())
    if not isinstance(app, KeyShared):
        raise ConfigError(
            f"--app {spec}: a {type(app).__name__}; name the KeyShared object, such as app.py:app"
        )
    conf = {**app.conf, **client_settings(list(settings))}
    # The static member id belongs to the running instance.
    conf.pop("group.instance.id", None)
    return Layers(conf, list(app.topics), msgspec.to_builtins(app.options), {})
