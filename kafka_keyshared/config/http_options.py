"""Options for the HTTP endpoints, the console, and the group view."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Addresses that only this machine can reach."""

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
"""Pattern of the topic names that a broker accepts."""

HttpPort: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=65_535)] | None,
    Meta(
        description="Port of `/metrics`, `/livez` and `/readyz`; 0 is any free port. Not set: they "
        "are not served.",
        extra={"flag": "--http-port"},
    ),
]
HttpHost: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1)],
    Meta(description="Address to listen on; 0.0.0.0 is every address of this machine."),
]
TokenFile: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Meta(
        description="File with the token for commands over HTTP, such as `keyshared routing "
        "assign`. "
        "Not set: these commands are refused.",
        extra={"allowed": "the path of a file"},
    ),
]
UnreadyWhenUnauthorized: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether `/readyz` answers 503 while the brokers deny a right on a topic or on "
        "the group. Its text names the right in any case."
    ),
]
ConsolePort: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=65_535)] | None,
    Meta(
        description="Port of the console and the admin API, which need the extra `console`; 0 is "
        "any free port. Not set: they are not served.",
        extra={"flag": "--console-port"},
    ),
]
ConsoleHost: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1)],
    Meta(
        description="Address of the admin API to listen on. An address that other machines reach "
        "needs `http_token_file`, and every request needs its token."
    ),
]
ConsoleUrl: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=r"^https?://[^\s/]+.*$", max_length=500)] | None,
    Meta(
        description="URL at which other machines reach this console, for links of the group view. "
        "Not set: the address that the console listens on.",
        extra={"allowed": "an address that begins with http:// or https://"},
    ),
]
ShowKeys: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether the admin API, `/status` and the diagnosis show keys of records. If "
        "not, they show slots, and `/status` leaves out stacks and messages of errors."
    ),
]
UnreadyOnOutage: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether `/readyz` answers 503 while most attempts fail, or while everything "
        "waits for a dependency. A rollout that waits for readiness stops."
    ),
]

# --- the group view, through which instances see one another ---

ViewTopic: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=TOPIC)] | None,
    Meta(
        description="Topic in which the instances of a group report their condition, such as "
        "`__keyshared_status`. The console of one instance then shows all. Several groups may "
        "share the topic. Not set: no reports.",
        extra={"allowed": "the name of a topic"},
    ),
]
ViewCreate: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether the start creates a missing `group_view_topic`, compacted and with "
        "one partition. If not, the log names the missing topic."
    ),
]
ViewAddresses: TypeAlias = Annotated[
    list[
        Annotated[
            str,
            Meta(
                pattern=r"^(?:http://)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$",
                max_length=300,
            ),
        ]
    ],
    Meta(
        description="Addresses of the admin APIs of the group's instances, instead of a topic. A "
        "name with several addresses, as of a headless service, means all of them. Requests use "
        "the token of `http_token_file`.",
        extra={"allowed": "a list, each host:port"},
    ),
]
ViewInterval: TypeAlias = Annotated[
    Annotated[float, Meta(ge=1, le=60)],
    Meta(
        description="Time between two reports of an instance. An instance that misses three is "
        "silent.",
        extra={"unit": "s"},
    ),
]
