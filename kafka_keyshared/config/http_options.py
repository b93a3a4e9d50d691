"""Options for the HTTP endpoints and for access to them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

HttpPort: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=65_535)] | None,
    Meta(
        description="Where `/metrics`, `/livez` and `/readyz` are served; 0 is any free port. "
        "Not set: nowhere.",
        extra={"flag": "--http-port"},
    ),
]
HttpHost: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1)],
    Meta(description="The address to serve on; 0.0.0.0 is every one of this machine."),
]
TokenFile: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Meta(
        description="A file with the token that whoever gives orders over HTTP has to show, as "
        "`keyshared routing assign` does. Not set: none are taken.",
        extra={"allowed": "the path of a file"},
    ),
]
UnreadyWhenUnauthorized: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether `/readyz` answers 503 while the brokers refuse a right on a topic or "
        "on the group; its text names the right in any case."
    ),
]
ConsolePort: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=65_535)] | None,
    Meta(
        description="Where the console and the admin API are served, with the extra `console`; 0 "
        "is any free port. Not set: nowhere.",
        extra={"flag": "--console-port"},
    ),
]
ConsoleHost: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1)],
    Meta(
        description="The address to serve the admin API on. Anything but this machine's own needs "
        "`http_token_file`, and its token for every question."
    ),
]
ShowKeys: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether the admin API, `/status` and the diagnosis name the keys of records; "
        "else they have their slots. `/status` leaves out stacks and messages of errors as well."
    ),
]

UnreadyOnOutage: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether `/readyz` answers 503 while most attempts fail. Records are consumed "
        "all the same; a rollout that waits for readiness stops."
    ),
]

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Addresses that only this machine can reach."""
