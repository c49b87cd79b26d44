"""An HTTP proxy in front of a real server that records its requests, and fails as tests ask."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from support.servers.server_process import HOST

_TOO_MANY = 429
# What holds for one connection only; and tests read answers as they come.
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "accept-encoding"}


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """What goes back."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    # What the header says, where that is not so.
    length: int | None = None


class ResetError(Exception):
    """Instead of an answer the connection breaks."""


Forward = Callable[[], Answer]
# Given a request and a way to have the real server answer it; answers, or breaks the connection.
Fault = Callable[[Asked, Forward], Answer]


class Proxy:
    """Forwards to a server; ends with the block.

    Args:
        target: the server's URI.
        tls: encrypts the connections to the proxy.
        delay_seconds: how long each answer is held back, as by a network.
    """

    def __init__(
        self, target: str, tls: ssl.SSLContext | None = None, *, delay_seconds: float = 0.0
    ) -> None:
        self.target = urlsplit(target)
        self._delay_seconds = delay_seconds
        self.asked: list[Asked] = []
        self.changes: list[Callable[[Asked, Answer], Answer]] = []
        # Answers instead of the server where it gives an answer.
        self.guard: Callable[[Asked], Answer | None] | None = None
        self._faults: list[tuple[str, re.Pattern[str], Fault]] = []
        self._late: Fault | None = None
        self._from = self._often = 0
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self._server = _Server((HOST, 0), type("Handler", (_Handler,), {"proxy": self}))
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.uri = f"http{'s' if tls else ''}://{HOST}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def fail(self, method: str, path: str, *faults: Fault) -> None:
        """Let the next requests that match go through faults, one each."""
        with self._lock:
            self._faults += [(method, re.compile(path), fault) for fault in faults]

    def fail_from(self, number: int, fault: Fault, *, often: int = 1) -> None:
        """Let ``often`` requests go through a fault, after the next ``number`` requests."""
        with self._lock:
            self._from = len(self.asked) + number
            self._often, self._late = often, fault

    def heal(self) -> int:
        """Forget all faults; return how many of those of `fail_from` never happened."""
        with self._lock:
            left, self._often = self._often, 0
            self._faults, self._late = [], None
        return left

    def times(self, method: str, path: str) -> int:
        """Return how often it was asked so."""
        return sum(
            item.method == method and re.search(path, item.path) is not None for item in self.asked
        )

    @property
    def unused(self) -> int:
        """How many faults are left."""
        return len(self._faults)

    def hang(self, asked: Asked, forward: Forward) -> Answer:
        """Never answer (a fault)."""
        self.ended.wait(120)
        raise ResetError

    def landed_and_hang(self, asked: Asked, forward: Forward) -> Answer:
        """Do it and never answer (a fault)."""
        forward()
        return self.hang(asked, forward)

    def answer(self, asked: Asked) -> Answer:
        """Answer a request, through its fault if it has one."""
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        with self._lock:
            self.asked.append(asked)
            fault = next((item for item in self._faults if _fits(item, asked)), None)
            if fault:
                self._faults.remove(fault)
            late = self._late if self._often > 0 and len(self.asked) > self._from else None
            self._often -= late is not None
        happening = fault[2] if fault else late
        if happening:
            return happening(asked, lambda: self._forward(asked))
        guarded = self.guard(asked) if self.guard else None
        if guarded:
            return guarded
        answer = self._forward(asked)
        for change in self.changes:
            answer = change(asked, answer)
        return answer

    def _forward(self, asked: Asked) -> Answer:
        assert self.target.hostname is not None
        connection = http.client.HTTPConnection(self.target.hostname, self.target.port, timeout=60)
        headers = {key: text for key, text in asked.headers.items() if key.lower() not in _HOP}
        connection.request(asked.method, asked.path, asked.body or None, headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return Answer(response.status, dict(response.getheaders()), body)


class _Server(ThreadingHTTPServer):
    """Accepts as many connections at once as stores do: the system refuses more, and the clients wait seconds."""

    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    """One connection; its class knows the proxy."""

    protocol_version = "HTTP/1.1"
    # Otherwise an answer's body waits 40 ms until the client has acknowledged the headers.
    disable_nagle_algorithm = True
    proxy: Proxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        asked = Asked(self.command, self.path, dict(self.headers.items()), self._body())
        try:
            self._send(self.proxy.answer(asked))
        except ResetError:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for key, text in answer.headers.items():
            if key.lower() not in _HOP:
                self.send_header(key, text)
        lengths = (t for key, t in answer.headers.items() if key.lower() == "content-length")
        length = next(lengths, None) if self.command == "HEAD" else None
        announced = len(answer.body) if answer.length is None else answer.length
        self.send_header("Content-Length", length or str(announced))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        if answer.length is not None:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


def _fits(fault: tuple[str, re.Pattern[str], Fault], asked: Asked) -> bool:
    return fault[0] == asked.method and fault[1].search(asked.path) is not None


def refused(status: int, text: str = "injected failure") -> Fault:
    """Answer with this status; the server never gets the request."""
    return lambda asked, _forward: _error(asked, status, text)


def landed(status: int, text: str = "injected failure") -> Fault:
    """Do it and answer with this status."""

    def fault(asked: Asked, forward: Forward) -> Answer:
        forward()
        return _error(asked, status, text)

    return fault


def reset(*, done: bool) -> Fault:
    """Break the connection, before or after it was done."""

    def fault(_asked: Asked, forward: Forward) -> Answer:
        if done:
            forward()
        raise ResetError

    return fault


def sent_twice(_asked: Asked, forward: Forward) -> Answer:
    """Do it twice, as a proxy does that believes the first attempt lost, and give the second answer."""
    forward()
    return forward()


def throttled(seconds: int) -> Fault:
    """Ask the client to come back later."""

    def fault(asked: Asked, _forward: Forward) -> Answer:
        answer = _error(asked, _TOO_MANY, "asked to wait")
        return replace(answer, headers={**answer.headers, "Retry-After": str(seconds)})

    return fault


def cut(*, announced: bool) -> Fault:
    """Do it and lose the end of the answer, with the whole length announced or with the shorter one."""

    def fault(_asked: Asked, forward: Forward) -> Answer:
        answer = forward()
        body = answer.body[: len(answer.body) // 2]
        return replace(answer, body=body, length=len(answer.body) if announced else len(body))

    return fault


def elsewhere(_asked: Asked, _forward: Forward) -> Answer:
    """Send the client to a host that is not configured."""
    return Answer(307, {"Location": "http://canary.invalid/elsewhere"})


def page(_asked: Asked, _forward: Forward) -> Answer:
    """Answer with a page for people, as portals in between do."""
    return Answer(200, {"Content-Type": "text/html"}, b"<html><body>Please log in</body></html>")


def endless(_asked: Asked, _forward: Forward) -> Answer:
    """Answer with far more than a client needs."""
    return Answer(200, {"Content-Type": "application/json"}, b'{"a": "' + b"x" * 30_000_000)


def _error(asked: Asked, status: int, text: str) -> Answer:
    """Return an error as the requested server does: a store of S3's kind in XML, a catalog in JSON."""
    if asked.headers.get("Authorization", "").startswith("AWS4-"):
        document = f"<Error><Code>Injected</Code><Message>{escape(text)}</Message></Error>"
        return Answer(status, {"Content-Type": "application/xml"}, document.encode())
    body = {"error": {"message": text, "type": "InjectedException", "code": status}}
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())
