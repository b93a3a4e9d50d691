"""Client settings that would break the contract, each with the reason.

The doctor warns of settings that are merely dangerous. Each rule comes from the client's measured
behavior (``docs/internals/client-behavior.md``), or from a named decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_FALSE = ("false", "f", "0")


class RefusedSetting(NamedTuple):
    """A refused setting. ``values`` describes the refused values in words.

    ``injected`` settings are refused only where no code review covers them: in the environment and
    in flags.
    """

    setting: str
    values: str
    is_meant: Callable[[str], bool]
    why: str
    cure: str
    injected: bool = False


def _not_false(text: str) -> bool:
    return text not in _FALSE


def _before_0_10(text: str) -> bool:
    return text.startswith(("0.8", "0.9"))


def _not_zero(text: str) -> bool:
    return text != "0"


def _any(_text: str) -> bool:
    return True


_COMMITS = "it would commit records that are not done"
_CODE = "runs what it names in this process or as a command"
_REVIEWED = "put it in the file or in the program, where it is reviewed"

REFUSED: tuple[RefusedSetting, ...] = (
    RefusedSetting(
        "enable.auto.commit",
        "true",
        _not_false,
        _COMMITS,
        "leave it out, this package commits what is safe",
    ),
    RefusedSetting(
        "enable.auto.offset.store",
        "true",
        _not_false,
        _COMMITS,
        "leave it out, this package commits what is safe",
    ),
    RefusedSetting(
        "default.topic.config",
        "anything",
        _any,
        "an auto.offset.reset in it wins over the one of this package, and the client would then "
        "repeat or skip records by itself",
        "put its settings beside the others",
    ),
    RefusedSetting(
        "test.mock.num.brokers",
        "all but 0",
        _not_zero,
        "the client would talk to brokers of its own making and not to bootstrap.servers",
        "leave it out",
    ),
    RefusedSetting(
        "broker.version.fallback",
        "0.8 and 0.9",
        _before_0_10,
        "with api.version.request=false the client then waits for records for ever, without an "
        "error",
        "leave it out",
    ),
    RefusedSetting("plugin.library.paths", "anything", _any, _CODE, _REVIEWED, injected=True),
    RefusedSetting("ssl.engine.location", "anything", _any, _CODE, _REVIEWED, injected=True),
    RefusedSetting("sasl.kerberos.kinit.cmd", "anything", _any, _CODE, _REVIEWED, injected=True),
)
