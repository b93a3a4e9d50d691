"""The arguments of a run, and the command-line options that set them.

They are declared once, so that ``run``, ``doctor`` and ``config`` cannot drift apart.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from kafka_keyshared.cli.options import (
    AppDir,
    Attempts,
    Bootstrap,
    ClientSettings,
    ConfigFile,
    ConsolePort,
    DeadLetters,
    DeadLettersCreate,
    FromBeginning,
    Group,
    Handler,
    HttpPort,
    NewWorkersWait,
    OnExhausted,
    OnUnmatchedFlag,
    RingWeights,
    RoutingFlag,
    RunKey,
    RunWorkers,
    Topics,
    UnblockingInterval,
)


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The values from the command line; None or empty for options not given."""

    handler: str | None = None
    bootstrap: str | None = None
    topics: list[str] = field(default_factory=list)
    group: str | None = None
    workers: str | None = None
    key: str | None = None
    dlq: str | None = None
    dlq_create: bool = False
    attempts: int | None = None
    on_exhausted: str | None = None
    routing: str | None = None
    ring_weights: Path | None = None
    on_unmatched: str | None = None
    unblocking_interval: float | None = None
    new_workers_wait: bool = False
    from_beginning: bool = False
    http_port: int | None = None
    console_port: int | None = None
    config: Path | None = None
    app_dir: Path = Path()
    client: list[str] = field(default_factory=list)


_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "bootstrap": (Bootstrap, None),
    "topics": (Topics, None),
    "group": (Group, None),
    "workers": (RunWorkers, None),
    "key": (RunKey, None),
    "dlq": (DeadLetters, None),
    "dlq_create": (DeadLettersCreate, False),
    "attempts": (Attempts, None),
    "on_exhausted": (OnExhausted, None),
    "routing": (RoutingFlag, None),
    "ring_weights": (RingWeights, None),
    "on_unmatched": (OnUnmatchedFlag, None),
    "unblocking_interval": (UnblockingInterval, None),
    "new_workers_wait": (NewWorkersWait, False),
    "from_beginning": (FromBeginning, False),
    "http_port": (HttpPort, None),
    "console_port": (ConsolePort, None),
    "config": (ConfigFile, None),
    "app_dir": (AppDir, Path()),
    "client": (ClientSettings, None),
}

Verb: TypeAlias = Callable[..., int]


def takes_settings(handler: Any) -> Callable[[Verb], Verb]:
    """Add the argument ``handler`` and the settings of a run to a verb.

    The verb gets them as one :class:`RunArguments`, its first parameter.
    """
    needed = handler is Handler
    settings = {"handler": (handler, inspect.Parameter.empty if needed else None), **_OPTIONS}

    def decorate(verb: Verb) -> Verb:
        hints = get_type_hints(verb, include_extras=True)
        _, *own = inspect.signature(verb).parameters.values()
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, default=default, annotation=option)
            for name, (option, default) in settings.items()
        ]
        parameters += [each.replace(annotation=hints[each.name]) for each in own]

        @functools.wraps(verb)
        def taking(**given: Any) -> int:
            said = {name: given.pop(name) for name in settings}
            said = {name: value for name, value in said.items() if value is not None}
            return verb(RunArguments(**said), **given)

        # typer reads the options of a command from these two.
        taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        taking.__annotations__ = {each.name: each.annotation for each in parameters}
        return taking

    return decorate
