"""The ctypes binding of librdkafka's mock cluster: its functions and their location.

librdkafka declares this API experimental. Therefore every symbol is looked up by name at the first
use, and the error names a missing one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from kafka_keyshared.errors import MissingPartError

_HANDLE = ctypes.c_void_p
_BROKER = ctypes.c_int32
_API_KEY = ctypes.c_int16
_HOW_MANY = ctypes.c_size_t
_ERROR = ctypes.c_int

REQUESTS = ctypes.POINTER(_HANDLE)
"""An array of the recorded requests."""

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_conf_new": (_HANDLE, ()),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        (_HANDLE, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, _HOW_MANY),
    ),
    "rd_kafka_new": (_HANDLE, (ctypes.c_int, _HANDLE, ctypes.c_char_p, _HOW_MANY)),
    "rd_kafka_destroy": (None, (_HANDLE,)),
    "rd_kafka_mock_cluster_new": (_HANDLE, (_HANDLE, ctypes.c_int)),
    "rd_kafka_mock_cluster_destroy": (None, (_HANDLE,)),
    "rd_kafka_mock_cluster_bootstraps": (ctypes.c_char_p, (_HANDLE,)),
    "rd_kafka_mock_topic_create": (
        _ERROR,
        (_HANDLE, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    ),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (_HANDLE, ctypes.c_int32)),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (_HANDLE, _API_KEY, _HOW_MANY, ctypes.POINTER(_ERROR)),
    ),
    "rd_kafka_mock_clear_request_errors": (None, (_HANDLE, _API_KEY)),
    # Variadic: an error and a delay in ms for each request. ctypes passes the arguments behind the
    # declared ones as variadic. That matters on platforms that pass them differently (Apple's
    # arm64).
    "rd_kafka_mock_broker_push_request_error_rtts": (
        _ERROR,
        (_HANDLE, _BROKER, _API_KEY, _HOW_MANY),
    ),
    "rd_kafka_mock_broker_error_stack_cnt": (
        _ERROR,
        (_HANDLE, _BROKER, _API_KEY, ctypes.POINTER(_HOW_MANY)),
    ),
    "rd_kafka_mock_broker_set_down": (_ERROR, (_HANDLE, _BROKER)),
    "rd_kafka_mock_broker_set_up": (_ERROR, (_HANDLE, _BROKER)),
    "rd_kafka_mock_coordinator_set": (
        _ERROR,
        (_HANDLE, ctypes.c_char_p, ctypes.c_char_p, _BROKER),
    ),
    "rd_kafka_mock_topic_set_error": (None, (_HANDLE, ctypes.c_char_p, _ERROR)),
    "rd_kafka_mock_partition_set_leader": (
        _ERROR,
        (_HANDLE, ctypes.c_char_p, ctypes.c_int32, _BROKER),
    ),
    "rd_kafka_mock_start_request_tracking": (None, (_HANDLE,)),
    "rd_kafka_mock_get_requests": (REQUESTS, (_HANDLE, ctypes.POINTER(_HOW_MANY))),
    "rd_kafka_mock_request_api_key": (_API_KEY, (_HANDLE,)),
    "rd_kafka_mock_request_destroy_array": (None, (REQUESTS, _HOW_MANY)),
}
"""Result and argument types of every function that is used, by its name in the library."""


class Native(NamedTuple):
    """The functions of :data:`SIGNATURES`, typed and callable, by their names without prefix."""

    conf_new: Callable[..., Any]
    conf_set: Callable[..., Any]
    new: Callable[..., Any]
    destroy: Callable[..., Any]
    mock_cluster_new: Callable[..., Any]
    mock_cluster_destroy: Callable[..., Any]
    mock_cluster_bootstraps: Callable[..., Any]
    mock_topic_create: Callable[..., Any]
    mock_group_initial_rebalance_delay_ms: Callable[..., Any]
    mock_push_request_errors_array: Callable[..., Any]
    mock_clear_request_errors: Callable[..., Any]
    mock_broker_push_request_error_rtts: Callable[..., Any]
    mock_broker_error_stack_cnt: Callable[..., Any]
    mock_broker_set_down: Callable[..., Any]
    mock_broker_set_up: Callable[..., Any]
    mock_coordinator_set: Callable[..., Any]
    mock_topic_set_error: Callable[..., Any]
    mock_partition_set_leader: Callable[..., Any]
    mock_start_request_tracking: Callable[..., Any]
    mock_get_requests: Callable[..., Any]
    mock_request_api_key: Callable[..., Any]
    mock_request_destroy_array: Callable[..., Any]


def bind(library: ctypes.CDLL) -> Native:
    """Look up every function in ``library``.

    Raises :class:`MissingPartError` naming the first missing function.
    """
    functions: dict[str, Callable[..., Any]] = {}
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as absent:
            raise MissingPartError(
                f"the embedded cluster needs {name}, which the librdkafka behind {library._name} "
                "does not export; install confluent-kafka from its wheel for Linux or macOS "
                "(pip install --only-binary :all: 'confluent-kafka>=2.16.1'), or use a real broker"
            ) from absent
        function.restype = result
        function.argtypes = arguments
        functions[name.removeprefix("rd_kafka_")] = function
    return Native(**functions)


@cache
def native() -> Native:
    """Return the library that ``confluent_kafka`` itself runs on.

    The extension module is opened, not a file that looks like librdkafka. Symbols are searched in
    the module and then in the libraries it is linked with. Therefore the library is never loaded
    twice, whether it came in a wheel for Linux or macOS or with the system. Raises
    :class:`MissingPartError`.
    """
    from confluent_kafka import cimpl

    path = getattr(cimpl, "__file__", None)
    if path is None:
        raise MissingPartError(
            "the embedded cluster needs confluent_kafka's compiled module as a file, and "
            f"{cimpl!r} has none; install confluent-kafka from its wheel"
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as failure:
        raise MissingPartError(
            f"the embedded cluster cannot open {path}: {failure}; reinstall confluent-kafka"
        ) from failure
    return bind(library)
