"""User configuration: one typed structure, its sources, and its checks."""

from __future__ import annotations

from kafka_keyshared.config.client import (
    DEFAULTS,
    check_deadlines,
    client_conf,
    connection_conf,
    session_seconds,
    starts_at_beginning,
)
from kafka_keyshared.config.core_settings import commit_policy, subscription_settings
from kafka_keyshared.config.environment import package_variables
from kafka_keyshared.config.file import FileConfig
from kafka_keyshared.config.layers import (
    Layers,
    from_flags,
    layered,
    load_file,
    merge,
    overlay,
    sources,
)
from kafka_keyshared.config.option_checks import make_options
from kafka_keyshared.config.options import Options, RetryOptions
from kafka_keyshared.config.setting_faults import Fault, SettingsError, refuse
from kafka_keyshared.config.worker_options import POOLS

__all__ = [
    "DEFAULTS",
    "POOLS",
    "Fault",
    "FileConfig",
    "Layers",
    "Options",
    "RetryOptions",
    "SettingsError",
    "check_deadlines",
    "client_conf",
    "commit_policy",
    "connection_conf",
    "from_flags",
    "layered",
    "load_file",
    "make_options",
    "merge",
    "overlay",
    "package_variables",
    "refuse",
    "session_seconds",
    "sources",
    "starts_at_beginning",
    "subscription_settings",
]
