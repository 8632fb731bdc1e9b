"""A local server in place of a chat endpoint, which answers exactly as a test scripts it."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Handler = http.server.BaseHTTPRequestHandler
Reply = Callable[[Handler], None]


def said(text: str, **extra: Any) -> Reply:
    """A proper answer."""
    answer = {
        "model": "served",
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5},
    }
    return raw(json.dumps(answer | extra))


def raw(body: str, status: int = 200, **headers: str) -> Reply:
    """Any body with any status."""

    def reply(handler: Handler) -> None:
        data = body.encode()
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return reply


class Endpoint:
    """What the server will answer (the last reply again and again), and what it was asked."""

    def __init__(self, *replies: Reply):
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.release = threading.Event()

    @property
    def count(self) -> int:
        return len(self.requests)

    def answer(self, handler: Handler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.requests.append(
            {"path": handler.path, "headers": dict(handler.headers), "body": json.loads(body)}
        )
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            reply(handler)

    def hang(self, handler: Handler) -> None:
        """Say nothing until the test is over."""
        self.release.wait(20)

    def drip(self, handler: Handler) -> None:
        """Send one byte at a time, each well within the time-out."""
        handler.send_response(200)
        handler.end_headers()
        while not self.release.wait(0.05):
            handler.wfile.write(b" ")


@contextlib.contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    """Base URL of a server on this machine for as long as the block lasts."""

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            endpoint.answer(self)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        # Whatever proxy the machine uses, these requests stay on it.
        with mock.patch.dict(os.environ, {"no_proxy": "127.0.0.1"}):
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        endpoint.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


def unused_address() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
