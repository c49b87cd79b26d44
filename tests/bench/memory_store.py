"""A store of S3's kind in the memory of a benchmark: many objects are there at once, and each answer is late.

moto takes a second for a page of a list of 30,000 objects; this takes a millisecond, so that a benchmark measures
clients. It does not check signatures, and has one bucket.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from email.utils import formatdate
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "bench"
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_HEAD = f'<?xml version="1.0" encoding="UTF-8"?>\n<{{}} xmlns="{_NAMESPACE}">'
_MOST_KEYS = 1000
# After every key that begins with a prefix.
_LAST = "\U0010ffff"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class MemoryStore:
    """A server on loopback; ends with the block.

    Args:
        latency_ms: how late each answer is.
    """

    def __init__(self, latency_ms: int) -> None:
        self.latency_ms = latency_ms
        self.asked: Counter[str] = Counter()
        # The seconds that this server worked on them, without the latency.
        self.worked = 0.0
        self._objects: dict[str, tuple[bytes, float]] = {}
        # The parts of uploads that have not ended, by their numbers.
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._begun = 0
        self._kept: dict[str, tuple[bytes, float]] = {}
        self._sorted: list[str] | None = None
        self.lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def properties(self) -> dict[str, str]:
        """The storage properties with which PyIceberg reaches it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }

    def forget(self) -> None:
        """Count requests from zero again."""
        with self.lock:
            self.asked.clear()
            self.worked = 0.0

    def keys(self) -> set[str]:
        """Return the keys of all objects."""
        with self.lock:
            return set(self._objects)

    def fill(self, keys: Iterable[str], data: bytes, changed: float) -> None:
        """Write objects of the same bytes as of a time, in seconds since 1970."""
        with self.lock:
            self._objects.update(dict.fromkeys(keys, (data, changed)))
            self._sorted = sorted(self._objects)

    def begin_upload(self) -> str:
        """Return the name of a new upload in parts."""
        with self.lock:
            self._begun += 1
            self.uploads[str(self._begun)] = {}
            return str(self._begun)

    def keep(self) -> None:
        """Keep the objects as they are, for `restore`."""
        with self.lock:
            self._kept = dict(self._objects)

    def restore(self) -> None:
        """Go back to the objects that were kept."""
        with self.lock:
            self._objects = dict(self._kept)
            self._sorted = None

    def put(self, key: str, data: bytes, changed: float) -> None:
        """Write an object as of a time, in seconds since 1970."""
        with self.lock:
            if key not in self._objects and self._sorted is not None:
                insort(self._sorted, key)
            self._objects[key] = data, changed

    def get(self, key: str) -> tuple[bytes, float] | None:
        """Return an object and its time."""
        return self._objects.get(key)

    def delete(self, *keys: str) -> None:
        """Delete objects; those that do not exist too."""
        with self.lock:
            for key in keys:
                if self._objects.pop(key, None):
                    self._sorted = None

    def page(
        self, prefix: str, after: str, delimiter: str, most: int
    ) -> tuple[list[tuple[str, int, float]], list[str], str]:
        """Return objects (key, size, time) after a key, common prefixes, and the last key if there are more."""
        with self.lock:
            if self._sorted is None:
                self._sorted = sorted(self._objects)
            found: list[tuple[str, int, float]] = []
            folders: list[str] = []
            place = max(bisect_left(self._sorted, prefix), bisect_right(self._sorted, after))
            last = ""
            while place < len(self._sorted):
                key = self._sorted[place]
                if not key.startswith(prefix):
                    break
                if len(found) + len(folders) == most:
                    return found, folders, last
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                if end < 0:
                    data, changed = self._objects[key]
                    found.append((key, len(data), changed))
                    last = key
                    place += 1
                else:
                    folders.append(key[: end + 1])
                    last = folders[-1] + _LAST
                    place = bisect_right(self._sorted, last)
            return found, folders, ""


class _Handler(BaseHTTPRequestHandler):
    """One connection; its class knows the store."""

    protocol_version = "HTTP/1.1"
    # Otherwise an answer waits for the acknowledgement of its headers.
    disable_nagle_algorithm = True
    store: MemoryStore
    _spent = 0.0

    def do_GET(self) -> None:
        body = self._body()
        time.sleep(self.store.latency_ms / 1000)
        parsed = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parsed.query, True).items()}
        bucket, _, key = unquote(parsed.path).lstrip("/").partition("/")
        kind = self._answer(bucket, key, query, body)
        with self.store.lock:
            self.store.asked[kind] += 1
            spent, self._spent = self._spent, time.thread_time()
            self.store.worked += self._spent - spent

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _answer(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> str:
        """Answer, and return the kind of the request."""
        if bucket != BUCKET:
            self._error(404, "NoSuchBucket")
            return "other"
        if self.command == "POST" and "delete" in query:
            self._delete_objects(body)
            return "DeleteObjects"
        if query.keys() & {"uploads", "uploadId"}:
            self._upload(key, query, body)
            return "UploadPart"
        if not key and self.command == "GET":
            self._list(query)
            return "ListObjects"
        if not key:
            self._send(200)
            return "HeadBucket"
        if self.command == "PUT":
            self._put(key, body)
        elif self.command == "DELETE":
            self.store.delete(key)
            self._send(204)
        else:
            self._get(key)
        return f"{self.command.title()}Object"

    def _get(self, key: str) -> None:
        found = self.store.get(key)
        if found is None:
            self._error(404, "NoSuchKey")
            return
        data, changed = found
        headers = {
            "ETag": _tag(data),
            "Last-Modified": formatdate(changed, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, data, **headers)
            return
        first, last = wanted.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last) + 1 if first and last else len(data), len(data))
        if start >= len(data):
            self._error(416, "InvalidRange")
            return
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._send(206, data[start:end], **headers)

    def _put(self, key: str, body: bytes) -> None:
        with self.store.lock:
            old = self.store.get(key)
            is_new = self.headers.get("If-None-Match") == "*"
            over = self.headers.get("If-Match")
            if (is_new and old) or (over and (old is None or _tag(old[0]) != over)):
                self._error(412, "PreconditionFailed")
                return
            self.store.put(key, body, time.time())
        self._send(200, ETag=_tag(body))

    def _upload(self, key: str, query: dict[str, str], body: bytes) -> None:
        """Begin an upload in parts, take a part, or end it; the parts are in the order of their numbers."""
        name = query.get("uploadId", "")
        if "uploads" in query:
            name = self.store.begin_upload()
            found = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>"
            self._send_xml(
                200,
                _HEAD.format("InitiateMultipartUploadResult"),
                found,
                "</InitiateMultipartUploadResult>",
            )
        elif self.command == "PUT":
            self.store.uploads[name][int(query["partNumber"])] = body
            self._send(200, ETag=_tag(body))
        elif self.command == "POST":
            parts = self.store.uploads.pop(name)
            data = b"".join(parts[number] for number in sorted(parts))
            self.store.put(key, data, time.time())
            found = f"<Key>{escape(key)}</Key><ETag>{escape(_tag(data))}</ETag>"
            self._send_xml(
                200,
                _HEAD.format("CompleteMultipartUploadResult"),
                found,
                "</CompleteMultipartUploadResult>",
            )
        else:
            self.store.uploads.pop(name, None)
            self._send(204)

    def _list(self, query: dict[str, str]) -> None:
        most = min(int(query.get("max-keys", _MOST_KEYS)), _MOST_KEYS)
        prefix = query.get("prefix", "")
        after = unquote(query.get("continuation-token", "")) or query.get("start-after", "")
        found, folders, last = self.store.page(prefix, after, query.get("delimiter", ""), most)
        parts = [
            _HEAD.format("ListBucketResult"),
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>",
            f"<KeyCount>{len(found) + len(folders)}</KeyCount>",
            f"<IsTruncated>{str(bool(last)).lower()}</IsTruncated>",
        ]
        if last:
            parts.append(f"<NextContinuationToken>{quote(last)}</NextContinuationToken>")
        for key, size, changed in found:
            parts.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(changed)}</LastModified>"
                f"<ETag>&quot;0&quot;</ETag><Size>{size}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        parts += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in folders
        ]
        self._send_xml(200, *parts, "</ListBucketResult>")

    def _delete_objects(self, body: bytes) -> None:
        keys = list(_keys_of(body))
        self.store.delete(*keys)
        deleted = [f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys]
        self._send_xml(200, _HEAD.format("DeleteResult"), *deleted, "</DeleteResult>")

    def _error(self, status: int, code: str) -> None:
        self._send_xml(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>")

    def _send_xml(self, status: int, *parts: str) -> None:
        self._send(status, "".join(parts).encode(), **{"Content-Type": "application/xml"})

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("x-amz-request-id", "0")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> bytes:
        """Return what the client sent, without the sizes and signatures between its chunks."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = _joined(self.rfile)
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            body = _joined(BytesIO(body))
        return body

    def log_message(self, *_: Any) -> None:
        pass


def _joined(source: Any) -> bytes:
    """Return the chunks of a body; trailers are skipped."""
    parts = []
    while size := int(source.readline().split(b";")[0], 16):
        parts.append(source.read(size))
        source.readline()
    while source.readline().strip():
        pass
    return b"".join(parts)


def _keys_of(body: bytes) -> Iterator[str]:
    for element in ElementTree.fromstring(body).iter():
        if element.tag.rpartition("}")[2] == "Key":
            yield element.text or ""


@lru_cache
def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
