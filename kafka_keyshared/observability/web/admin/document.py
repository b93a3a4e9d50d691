"""The OpenAPI document of the admin API, generated from its answer types."""

from __future__ import annotations

from typing import Any

import msgspec

from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.observability.web.admin.feed import OF_GROUP, PARTS
from kafka_keyshared.observability.web.command_list import VERBS, Done, OrderRefused
from kafka_keyshared.observability.web.commands import ACTIONS, NAME_HEADER
from kafka_keyshared.observability.web.group.report import InstanceReport
from kafka_keyshared.observability.web.group.view import GroupView
from kafka_keyshared.observability.web.resize_preview import Foretold
from kafka_keyshared.observability.web.snapshot import (
    DeadLetters,
    DiagnosisView,
    InstanceSnapshot,
    Setting,
    StuckRecord,
)
from kafka_keyshared.status import ErrorGroup, PartitionStatus, RebalanceStatus

PREFIX = "/api/v1"

WHAT_IF = "what-if"
"""Path of the query for the effect of another number of workers."""

_ANSWERS: dict[str, Any] = {
    "snapshot": InstanceSnapshot,
    "diagnosis": DiagnosisView,
    "partitions": tuple[PartitionStatus, ...],
    "stuck": tuple[StuckRecord, ...],
    "errors": dict[str, tuple[ErrorGroup, ...]],
    "rebalances": tuple[RebalanceStatus, ...],
    "dlq": DeadLetters,
    "settings": tuple[Setting, ...],
    WHAT_IF: Foretold,
    "group": GroupView,
    "report": InstanceReport,
}
"""Answer types by path, for answers with a type of their own."""


def document(version: str) -> dict[str, Any]:
    """Return the document. ``version`` is that of the package."""
    orders = {name: verb.order for name, verb in VERBS.items()}
    types = [*_ANSWERS.values(), Finding, Done, OrderRefused, *orders.values()]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_name = dict(zip(_ANSWERS, schemas, strict=False))
    looks = {name: text for name, (text, _) in (*PARTS.items(), *OF_GROUP.items())}
    paths = {
        f"{PREFIX}/{name}": {"get": _get(text, by_name.get(name, {"type": ["object", "array"]}))}
        for name, text in looks.items()
    }
    what_if = _get("The slots that another number of workers would move.", by_name[WHAT_IF])
    what_if["responses"]["400"] = {
        "description": "There is no preview; a line of text has the reason."
    }
    what_if["parameters"] = [
        {"name": name, "in": "query", "required": needed, "schema": {"type": kind}}
        for name, kind, needed in (("workers", "integer", True), ("subscription", "string", False))
    ]
    paths[f"{PREFIX}/{WHAT_IF}"] = {"get": what_if}
    stream = _get("The snapshot, once a second, as server-sent events named `snapshot`.", {})
    stream["responses"]["200"]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    paths[f"{PREFIX}/stream"] = {"get": stream}
    for name, schema in zip(orders, schemas[-len(orders) :], strict=True):
        paths[f"{ACTIONS}{name}"] = {"post": _post(VERBS[name].text, schema)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kafka-keyshared",
            "version": version,
            "description": "The state of a running instance, and the orders that it takes. "
            "Keys are hidden unless `show_keys` is set; payloads are never shown.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _get(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    refused = {"description": "Refused; the reason is in a line of text."}
    return {
        "summary": text,
        "responses": {
            "200": {"description": text, "content": {"application/json": {"schema": schema}}},
            "401": refused,
            "403": refused,
            "421": refused,
            "503": {"description": "It has only just begun, or there are too many streams."},
        },
    }


def _post(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    def told(what: str, name: str) -> dict[str, Any]:
        ref = {"$ref": f"#/components/schemas/{name}"}
        return {"description": what, "content": {"application/json": {"schema": ref}}}

    refused = told("OrderRefused, and why.", "OrderRefused")
    codes = ("400", "401", "403", "404", "408", "409", "413", "421", "503")
    return {
        "summary": text,
        "security": [{"token": []}],
        "parameters": [
            {
                "name": NAME_HEADER,
                "in": "header",
                "description": "Who asks, for the log.",
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {"content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": told("Done.", "Done"),
            **dict.fromkeys(codes, refused),
            "504": told(
                "Not done in time; the text says whether it goes on by itself.", "OrderRefused"
            ),
        },
    }
