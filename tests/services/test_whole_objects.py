"""Whole objects are read and written by one request each, with the answers and the errors of a real S3 server."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.faults.faulty_proxy import (
    Answer,
    Asked,
    Forward,
    Proxy,
    cut,
    landed,
    page,
    refused,
    reset,
)
from support.servers.s3_server import S3
from support.servers.server_process import HOST

from lake.core.base.errors import (
    CorruptFileError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    StorageError,
)
from lake.core.io.objects import s3 as s3_requests
from lake.core.io.objects import whole_objects
from lake.core.io.objects.requests import UnsupportedError
from lake.core.io.objects.s3_connection import Connection
from lake.core.io.objects.upload import PUT_BYTES
from lake.core.io.storage import storage as storage_module
from lake.core.io.storage.storage import Storage

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def store(gateway: S3) -> S3:
    """The server of the fixtures that files share: requests are counted."""
    return gateway


def asked(proxy: Proxy) -> list[str]:
    """Return the methods of the requests since the last call."""
    methods = [item.method for item in proxy.asked]
    proxy.asked.clear()
    return methods


def test_a_small_object_takes_one_request_to_write_and_one_to_read(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    for data in (b"", b"x", b"x" * 1024 * 1024):
        storage.write(place, data)
        assert asked(proxy) == ["PUT"]
        assert storage.read(place) == data
        assert asked(proxy) == ["GET"]
        with storage.open_input(place) as source:
            assert source.read() == data
        # An empty object has no last bytes.
        assert asked(proxy) == ["GET"] * (1 if data else 2)


def test_a_part_of_an_object_takes_one_request_and_ends_with_the_object(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    storage.write(place, b"0123456789")
    asked(proxy)
    assert storage.read_part(place, 2, 3) == b"234"
    assert storage.read_part(place, 8, 9) == b"89"
    assert storage.read_part(place, 10, 1) == b""
    assert asked(proxy) == ["GET"] * 3
    with pytest.raises(NotFoundError):
        storage.read_part(f"{place}-2", 0, 1)


@pytest.mark.parametrize("size", [0, 1, PUT_BYTES, PUT_BYTES + 1, 2 * PUT_BYTES + 7])
def test_what_is_written_piece_by_piece_is_read_back_whatever_its_size(
    storage: Storage, proxy: Proxy, place: str, size: int
) -> None:
    data = os.urandom(size)
    with storage.open_output(place) as sink:
        for start in range(0, size, 1_000_003):
            sink.write(data[start : start + 1_000_003])
        assert sink.tell() == size
    assert (asked(proxy) == ["PUT"]) is (size <= PUT_BYTES)
    assert storage.read(place) == data


def test_a_parquet_file_that_is_abandoned_never_exists(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    table = pa.table({"id": [1, 2]})
    with storage.open_output(place) as sink, pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
    with storage.open_input(place) as source:
        assert pq.read_table(source) == table
    asked(proxy)
    sink = storage.open_output(f"{place}-2")
    writer = pq.ParquetWriter(sink, table.schema)
    writer.write_table(table)
    writer.close()
    sink.abandon()

    assert asked(proxy) == []
    assert not storage.exists(f"{place}-2")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (refused(403), NotAuthorisedError),
        (refused(404), NotFoundError),
        (page, StorageError),
        (refused(400), StorageError),
    ],
    ids=["403", "404", "page", "400"],
)
def test_a_read_that_the_store_refuses_is_reported_as_what_it_is(
    storage: Storage, proxy: Proxy, place: str, fault: object, error: type[LakeError]
) -> None:
    storage.write(place, b"x")
    proxy.fail("GET", "", *[fault] * 20)
    with pytest.raises(error):
        storage.read(place)


def test_a_request_that_fails_for_a_moment_is_repeated(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    plain = Answer(503, {"Content-Type": "text/plain"}, b"no healthy upstream")
    proxy.fail("PUT", "", refused(503), reset(done=False), reset(done=True), landed(500))
    storage.write(place, b"x" * 1000)
    proxy.fail("GET", "", refused(429), reset(done=False), cut(announced=True), lambda *_: plain)
    assert storage.read(place) == b"x" * 1000
    assert proxy.unused == 0


def test_an_error_repeats_nothing_of_the_request_or_of_the_answer(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    def echo(asked: Asked, _forward: Forward) -> Answer:
        secret = asked.headers.get("authorization", "") or asked.headers["Authorization"]
        body = f"<Error><Code>AccessDenied</Code><Message>canary {secret}</Message></Error>"
        return Answer(403, {"Content-Type": "application/xml"}, body.encode())

    proxy.fail("GET", "", *[echo] * 20)
    with pytest.raises(NotAuthorisedError) as failed:
        storage.read(place)
    chain: BaseException | None = failed.value
    while chain is not None:
        assert "canary" not in str(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


@pytest.mark.parametrize("fault", [reset(done=True), landed(500), landed(409), landed(412)])
def test_a_creation_whose_answer_is_lost_is_read_back(
    storage: Storage, proxy: Proxy, place: str, fault: object
) -> None:
    assert storage.create(f"{place}-1", b"x")
    assert asked(proxy) == ["PUT"]
    proxy.fail("PUT", "", fault)
    assert storage.create(place, b"x")
    assert storage.read(place) == b"x"
    assert proxy.unused == 0


def test_a_conflict_is_not_an_existing_object_until_the_object_is_found(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    proxy.fail("PUT", "", refused(409), refused(409))
    assert storage.create(place, b"x")
    assert asked(proxy) == ["PUT", "GET"] * 2 + ["PUT"]
    assert storage.read(place) == b"x"


@pytest.mark.parametrize("other", [b"", b"y", b"xx"])
def test_another_object_of_the_same_name_is_never_overwritten(
    storage: Storage, place: str, other: bytes
) -> None:
    storage.write(place, other)
    with pytest.raises(FileExistsError):
        storage.create(place, b"x")
    assert storage.read(place) == other


def test_a_store_without_conditional_requests_is_left_to_another_client(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    proxy.fail("PUT", "", refused(501))
    assert not storage.create(place, b"x")
    assert not storage.exists(place)


def test_manifests_are_read_once_and_again_by_no_other_table(
    storage: Storage, gateway: S3, proxy: Proxy, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "_UNCHANGING_BYTES", 5)
    storage.write(place, b"xxxx")
    storage.write(f"{place}-2", b"yy")
    asked(proxy)
    for _ in range(3):
        assert storage.read_unchanging(place) == b"xxxx"
        assert storage.read_unchanging(f"{place}-2") == b"yy"
    assert asked(proxy) == ["GET"] * 4
    again = Storage(gateway.properties(proxy.uri))
    again.share(storage)
    assert again.read_unchanging(place) == b"xxxx"
    assert asked(proxy) == []
    assert Storage(gateway.properties(proxy.uri)).read_unchanging(place) == b"xxxx"
    assert asked(proxy) == ["GET"]


def test_bytes_that_are_written_again_are_compared_with_their_md5_or_read_twice(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    storage.write(place, b"xxxx")
    storage.write(f"{place}-2", b"yyyy")
    asked(proxy)
    assert storage.read_unchanging(place) == b"xxxx"
    assert storage.read_unchanging(place, certain=True) == b"xxxx"
    assert asked(proxy) == ["GET"]

    def encrypted(asked: Asked, answer: Answer) -> Answer:
        tag = {"ETag": '"0123456789abcdef0123456789abcdef"'}
        return replace(answer, headers={**answer.headers, **tag}, body=wrong.pop())

    proxy.changes.append(encrypted)
    wrong = [b"yyyy", b"yyyy"]
    assert storage.read_unchanging(f"{place}-2", certain=True) == b"yyyy"
    wrong = [b"yyzy"]
    with pytest.raises(CorruptFileError, match="different bytes on two reads"):
        storage.read_unchanging(f"{place}-2", certain=True)
    assert asked(proxy) == ["GET"] * 3


def test_one_request_finds_whether_there_is_a_folder(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    folder = place.rpartition("/")[0]
    assert not storage.is_folder(folder)
    storage.write(f"{folder}-2/x", b"x")
    assert not storage.is_folder(folder)
    storage.write(f"{folder}/b/c", b"x")
    assert storage.is_folder(folder)
    assert not storage.is_folder(f"{folder}/b/c")
    assert asked(proxy) == ["GET", "PUT", "GET", "PUT", "GET", "GET"]
    proxy.fail("GET", "", refused(403))
    with pytest.raises(NotAuthorisedError):
        storage.is_folder(folder)


@pytest.mark.parametrize("token", [None, "canary-token"])
def test_no_request_follows_a_redirect_to_another_host(
    gateway: S3, proxy: Proxy, place: str, token: str | None
) -> None:
    Storage(gateway.properties()).write(place, b"x")
    given = {"s3.session-token": token} if token else {}
    storage = Storage({**gateway.properties(proxy.uri), **given})
    with Proxy(gateway.endpoint) as other:
        location = other.uri.replace(HOST, "localhost")
        proxy.guard = lambda asked: Answer(307, {"Location": f"{location}{asked.path}"})
        for call in (storage.read, partial(storage.write, data=b"y")):
            with pytest.raises(StorageError, match="HTTP status 307"):
                call(place)
        assert asked(proxy) == ["GET", "PUT"]
        assert other.asked == []


def test_keys_are_shown_nowhere(gateway: S3, storage: Storage, place: str) -> None:
    bucket = storage.s3(place)
    assert bucket is not None
    whole = bucket[0].objects()
    shown = repr(vars(whole)) + repr(whole) + repr(bucket[0]) + repr(bucket[0]._connection)
    assert gateway.properties()["s3.secret-access-key"] not in shown
    assert "canary" not in shown


def test_the_environments_settings_do_not_replace_what_is_configured(
    gateway: S3, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    storage = Storage(gateway.properties())
    storage.write(place, b"x")
    assert storage.read(place) == b"x"


def test_a_fork_of_a_process_that_has_made_requests_does_not_hang(
    gateway: S3, place: str, tmp_path: Path
) -> None:
    storage = Storage(gateway.properties())
    storage.write(place, b"x")
    child = os.fork()
    if child == 0:
        # It must neither hang nor return to pytest.
        signal.alarm(30)
        reached = Storage(gateway.properties()).s3(place)
        try:
            assert reached is not None
            reached[0].read(reached[1])
        except UnsupportedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://127.0.0.1:9000", True),
        ("https://[::1]:9000/", True),
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://host/prefix", False),
        ("https://user:word@host", False),
        ("::bad", False),
        ("http://host:port", False),
        ("ftp://host", False),
    ],
)
def test_only_addresses_that_the_client_can_ask_are_given_to_it(
    endpoint: str, expected: bool
) -> None:
    assert whole_objects.is_supported(endpoint) is expected


@pytest.mark.parametrize(
    ("bucket", "region", "address"),
    [
        ("b", "eu-west-1", "https://b.s3.eu-west-1.amazonaws.com"),
        ("a.b", "eu-west-1", "https://s3.eu-west-1.amazonaws.com"),
        ("b", "cn-north-1", "https://b.s3.cn-north-1.amazonaws.com.cn"),
        ("b", "us-gov-west-1", "https://b.s3.us-gov-west-1.amazonaws.com"),
    ],
)
def test_amazons_own_stores_are_addressed_by_the_bucket_in_the_host(
    bucket: str, region: str, address: str
) -> None:
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.region": region}
    found = s3_requests.S3(Connection(keys, bucket))
    assert found is not None
    assert found.objects().address.endpoint == address
    assert found.objects().address.is_virtual is ("." not in bucket)
