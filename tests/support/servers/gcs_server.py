"""Google Cloud Storage as tests use it: fake-gcs-server, behind a front that speaks the XML API where that does not.

The server has uploads, with their conditions, in the JSON API only.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pyarrow.fs as pafs

from support.faults.faulty_proxy import Answer, Asked, Proxy
from support.servers import built
from support.servers.server_process import HOST, Server, free_port

_VERSION = "v1.56.1"
_EXPIRES_MS = "4102444800000"


def program() -> Path | str:
    """Return the program, or what this machine lacks."""
    return built.by_go("fake-gcs-server", "github.com/fsouza/fake-gcs-server", _VERSION)


class Gcs:
    """A running server; each test has a bucket of its own."""

    def __init__(self, token: str) -> None:
        """Start it; it refuses other tokens."""
        self._token = token
        self._folder = tempfile.TemporaryDirectory(prefix="lake-gcs-")
        self._buckets = itertools.count(1)
        port = free_port()
        place = ("-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory")
        command = [program(), *place, "-public-host", f"{HOST}:{port}", "-log-level", "error"]
        self.server = Server(command, port, Path(self._folder.name) / "log")
        self.front = _Front(f"http://{HOST}:{port}", token)
        self.endpoint = self.front.uri

    def properties(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the storage properties with which PyIceberg reaches it."""
        return {
            "gcs.service.host": endpoint or self.endpoint,
            "gcs.oauth2.token": self._token,
            "gcs.oauth2.token-expires-at": _EXPIRES_MS,
        }

    def judge(self) -> dict[str, str]:
        """Return what PyIceberg needs in addition."""
        return {}

    def bucket(self) -> str:
        """Return the name of a new, empty bucket."""
        name = f"lake{next(self._buckets)}"
        self.files().create_dir(name)
        return name

    def warehouse(self) -> tuple[str, str]:
        """Return the location and the path of a new, empty bucket."""
        name = self.bucket()
        return f"gs://{name}", name

    def files(self) -> Any:
        """Return the server as PyArrow sees it."""
        return pafs.GcsFileSystem(
            anonymous=True,
            scheme="http",
            endpoint_override=f"{HOST}:{self.server.port}",
            project_id="lake",
        )

    def end(self) -> None:
        """Stop it."""
        self.front.__exit__()
        self.server.end()
        self._folder.cleanup()


class _Front(Proxy):
    """Translates uploads of the XML API, and passes on all other requests."""

    def __init__(self, target: str, token: str) -> None:
        super().__init__(target)
        self._login = f"Bearer {token}"
        self._uploads: dict[str, dict[int, bytes]] = defaultdict(dict)
        self._numbers = itertools.count(1)

    def _forward(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        given = {name.lower(): text for name, text in asked.headers.items()}
        if asked.path != "/" and given.get("authorization") != self._login:
            return _error(401, "AuthenticationRequired")
        self.asked.clear()
        # The server compares the host with its own.
        given.pop("host", None)
        asked = replace(asked, headers=given)
        upload = query.get("uploadId", "")
        if asked.path.startswith(("/upload/", "/storage/", "/download/", "/batch/")):
            return super()._forward(asked)
        if asked.method == "POST" and "uploads" in query:
            return _answer(
                f"<UploadId>{next(self._numbers)}</UploadId>", "InitiateMultipartUploadResult"
            )
        if upload and asked.method == "PUT":
            self._uploads[upload][int(query["partNumber"])] = asked.body
            return Answer(200, {"ETag": f'"{query["partNumber"]}"'})
        if upload and asked.method == "DELETE":
            self._uploads.pop(upload, None)
            return Answer(204)
        if upload:
            pieces = self._uploads.pop(upload)
            asked = replace(asked, body=b"".join(pieces[number] for number in sorted(pieces)))
            answer = self._upload(asked, parts.path)
            if answer.status != 200:
                return answer
            tag = f"<ETag>{escape(answer.headers['ETag'])}</ETag>"
            done = _answer(tag, "CompleteMultipartUploadResult")
            return replace(done, headers={**done.headers, **answer.headers})
        return self._upload(asked, parts.path) if asked.method == "PUT" else super()._forward(asked)

    def _upload(self, asked: Asked, path: str) -> Answer:
        _, bucket, key = path.split("/", 2)
        condition = asked.headers.get("x-goog-if-generation-match")
        more = f"&ifGenerationMatch={condition}" if condition is not None else ""
        name = quote(unquote(key), safe="")
        answer = super()._forward(
            Asked(
                "POST",
                f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}{more}",
                {"Authorization": self._login, "Content-Type": "application/octet-stream"},
                asked.body,
            )
        )
        if answer.status != 200:
            return _error(answer.status, "PreconditionFailed" if answer.status == 412 else "Error")
        made = json.loads(answer.body)
        return Answer(200, {"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]})


def _answer(members: str, name: str) -> Answer:
    return Answer(200, {"Content-Type": "application/xml"}, f"<{name}>{members}</{name}>".encode())


def _error(status: int, code: str) -> Answer:
    return replace(_answer(f"<Code>{code}</Code>", "Error"), status=status)
