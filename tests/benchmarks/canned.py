"""Answers every request with the same page: where clients are aimed so that no instance is asked.

As a program: ``python -m tests.benchmarks.canned PORT...`` listens at these ports until it is
ended. One thread takes what comes as it comes, so that it costs as little as can be.
"""

from __future__ import annotations

import selectors
import signal
import socket
import sys
from types import FrameType

BODY = b"x" * 20_000
"""About as long as the metrics of an instance with eight partitions and eight workers."""

PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
END = b"\r\n\r\n"
AT_ONCE = 65_536
BACKLOG = 256


def main(ports: list[int]) -> int:
    """Answer until ended."""
    signal.signal(signal.SIGTERM, _end)
    with selectors.DefaultSelector() as selector:
        for port in ports:
            listening = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
            selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                asked = key.fileobj
                assert isinstance(asked, socket.socket)
                if key.data is None:
                    connection, _ = asked.accept()
                    selector.register(connection, selectors.EVENT_READ, bytearray())
                elif not _answered(asked, key.data):
                    selector.unregister(asked)
                    asked.close()


def _answered(connection: socket.socket, sofar: bytearray) -> bool:
    """Take what has come, and answer once a request is whole; False when the client is gone."""
    try:
        came = connection.recv(AT_ONCE)
        sofar += came
        if sofar.endswith(END):
            sofar.clear()
            connection.sendall(PAGE)
    except OSError:
        return False
    return bool(came)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main([int(each) for each in sys.argv[1:]]))
