"""Settings from environment variables, and variables that are not settings.

``KEYSHARED_RETRY_ATTEMPTS`` is the setting ``retry.attempts``, ``KEYSHARED_KAFKA_SASL_PASSWORD``
the client's ``sasl.password``, ``KEYSHARED_CONFIG`` the file. An empty value counts as not set. Any
other variable with the prefix is refused. Otherwise a mistyped setting would have no effect, and no
error would say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kafka_keyshared.config.fields import Field, fields
from kafka_keyshared.config.properties import CONSUMER, PRODUCER
from kafka_keyshared.config.renamed_settings import ENVIRONMENT, PREFIX, RENAMED, renaming
from kafka_keyshared.config.setting_faults import Fault, guess

CONFIG = f"{PREFIX}CONFIG"
CLIENT = f"{PREFIX}KAFKA_"

LOG = (f"{PREFIX}LOG_LEVEL", f"{PREFIX}LOG_FORMAT")
"""Variables of the command line, read where its flags are not given."""

URL = f"{PREFIX}URL"
"""The instance that the command line queries, where its flag is not given."""

RESERVED = (f"{PREFIX}SEEDS", f"{PREFIX}KAFKA_JARS", f"{PREFIX}SPARK_JARS", *LOG, URL)
"""Variables of the command line and of this project's own tests and tools.

They set the number of seeds, and the folders of a broker's and Spark's jars.
"""

RESERVED_PREFIXES = (f"{PREFIX}TEST_",)

# Kubernetes gives every container the addresses of its services under their names. So a service
# called keyshared, or keyshared-http, creates variables that look like settings.
_SERVICE = re.compile(
    rf"{PREFIX}(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)\w*)"
)
_SERVICE_PORT = re.compile(r"(?:tcp|udp|sctp)://")


@cache
def variables() -> Mapping[str, Field]:
    """Return the setting of each variable, without the client's settings."""
    return {field.env: field for field in fields().values() if field.env is not None}


@cache
def _client_names() -> Mapping[str, str]:
    return {CLIENT + each.upper().replace(".", "_"): each for each in (*CONSUMER, *PRODUCER)}


def client_name(variable: str) -> str:
    """Return the client setting that a variable stands for.

    An underscore stands for a dot, except in the few names that have one, such as ``log_level``.
    """
    known = _client_names().get(variable)
    return known or variable.removeprefix(CLIENT).lower().replace("_", ".")


def package_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are meant as settings."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX)
        and value
        and name not in RESERVED
        and not name.startswith(RESERVED_PREFIXES)
        and not _SERVICE.fullmatch(name)
        and not (name.endswith("_PORT") and _SERVICE_PORT.match(value))
    }


def config_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file that the environment names."""
    return Path(environ[CONFIG]) if environ.get(CONFIG) else None


def unknown_variable(variable: str) -> Fault:
    """Return the fault of a variable that is not a setting. It omits the value, maybe a secret."""
    rest = variable.removeprefix(PREFIX)
    if (former := rest.lower()) in RENAMED:
        return Fault((variable,), renaming(former, ENVIRONMENT))
    names = [*variables(), CONFIG, *LOG, *_client_names()]
    # With the shared prefix all names would look alike.
    meant = CLIENT + rest
    hint = f"; did you mean {meant!r}?" if meant in names else _near(rest, names)
    text = (
        f"the environment variable {variable} is not a setting{hint}; give KEYSHARED_<SETTING>, or "
        f"{CLIENT}<SETTING> for the client"
    )
    return Fault((variable,), text)


def _near(rest: str, names: list[str]) -> str:
    near = guess(rest, [name.removeprefix(PREFIX) for name in names])
    return near.replace("'", f"'{PREFIX}", 1)
