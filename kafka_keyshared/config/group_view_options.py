"""Options for the group view, through which instances see one another."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
"""Pattern of the topic names that a broker accepts."""

ViewTopic: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=TOPIC)] | None,
    Meta(
        description="A topic in which the instances of a group tell one another how they are, so "
        "that the console of one shows all, as in `__keyshared_status`. Groups may share it. Not "
        "set: nothing is told.",
        extra={"allowed": "the name of a topic"},
    ),
]
ViewCreate: TypeAlias = Annotated[
    bool,
    Meta(
        description="Make that topic when it is missing, compacted and of one partition; otherwise "
        "the log says that it is missing."
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
        description="Instead of a topic: where the admin APIs of the group's instances are. A name "
        "with several addresses, as of a headless service, means all of them. They are asked with "
        "the token of `http_token_file`.",
        extra={"allowed": "a list, each host:port"},
    ),
]
ViewInterval: TypeAlias = Annotated[
    Annotated[float, Meta(ge=1, le=60)],
    Meta(
        description="How often an instance tells how it is; after three times that without a word "
        "it counts as silent.",
        extra={"unit": "s"},
    ),
]
ConsoleUrl: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=r"^https?://[^\s/]+.*$", max_length=500)] | None,
    Meta(
        description="Where others reach this instance's console, for the links of the group view. "
        "Not set: where it listens.",
        extra={"allowed": "an address that begins with http:// or https://"},
    ),
]
