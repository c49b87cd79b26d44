"""A REST catalog and a store between which credentials die: proxies in front of the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.faults.faulty_proxy import Answer, Asked, Proxy

EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)
PREFIX = "canary-session-"


@dataclass
class Vending:
    """Gives a session token with each table, and lets the store refuse all but the living.

    Args:
        catalog: in front of the REST server.
        store: in front of the S3 server.
        expires_ms: when a token given now expires; None to leave it out.
        dies_at: after this number of requests to the store, all tokens so far expire, once.
        prefixes: vend by these prefixes, each with a token of its own, instead of for the whole table.
    """

    catalog: Proxy
    store: Proxy
    expires_ms: int | None = None
    dies_at: int | None = None
    prefixes: tuple[str, ...] = ()
    given: int = 0
    dead: int = 0
    refused: int = 0
    served: int = 0
    # Which prefix's token each request to the store came with.
    used: list[tuple[str, str]] = field(default_factory=list)

    def die(self) -> None:
        """Let every token so far be over."""
        self.dead = self.given

    def _token(self, place: str = "") -> dict[str, str]:
        config = {"s3.session-token": f"{PREFIX}{self.given}-{place}"}
        if self.expires_ms is not None:
            config["s3.session-token-expires-at-ms"] = str(self.expires_ms)
        return config

    def vend(self, asked: Asked, answer: Answer) -> Answer:
        """Put tokens into what the catalog answers for a table (a proxy's change)."""
        path = asked.path.partition("?")[0]
        if path.endswith("/credentials") and self.prefixes:
            self.given += 1
            return _document({"storage-credentials": self._by_prefix()}, {})
        if "/tables" not in path or answer.status != 200 or not answer.body:
            return answer
        document = json.loads(answer.body)
        if "metadata" not in document:
            return answer
        self.given += 1
        if self.prefixes:
            document["storage-credentials"] = self._by_prefix()
        else:
            document["config"] = {**document.get("config", {}), **self._token()}
        return _document(document, answer.headers)

    def _by_prefix(self) -> list[dict[str, object]]:
        return [
            {"prefix": prefix, "config": self._token(str(number))}
            for number, prefix in enumerate(self.prefixes)
        ]

    def guard(self, asked: Asked) -> Answer | None:
        """Refuse a request with an expired token, or without one."""
        self.served += 1
        if self.dies_at is not None and self.served >= self.dies_at:
            self.dies_at = None
            self.die()
        headers = {key.lower(): text for key, text in asked.headers.items()}
        number, _, place = (
            headers.get("x-amz-security-token", "").removeprefix(PREFIX).partition("-")
        )
        if number.isdigit() and int(number) > self.dead:
            self.used.append((place, f"{asked.method} {asked.path}"))
            return None
        self.refused += 1
        return Answer(400, {"Content-Type": "application/xml"}, EXPIRED)


@contextmanager
def vending(catalog: str, store: str) -> Iterator[Vending]:
    """Start proxies in front of both."""
    with Proxy(catalog) as rest, Proxy(store) as objects:
        between = Vending(rest, objects)
        rest.changes.append(between.vend)
        objects.guard = between.guard
        yield between


def _document(content: object, headers: dict[str, str]) -> Answer:
    kept = {name: text for name, text in headers.items() if name != "Content-Encoding"}
    return Answer(200, {"Content-Type": "application/json", **kept}, json.dumps(content).encode())
