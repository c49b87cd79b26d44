"""Large objects are read and written in parts; no fault on the wire shows a part of one, or rows of another."""

from __future__ import annotations

import os
import re
import urllib.request
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.faults.faulty_proxy import (
    Answer,
    Asked,
    Fault,
    Forward,
    Proxy,
    cut,
    landed,
    page,
    refused,
    reset,
)
from support.servers.s3_server import S3

from lake.core.base.errors import LakeError, NotAuthorisedError, StorageError, TimedOutError
from lake.core.io.objects.large_file import LargeFile
from lake.core.io.objects.upload import PUT_BYTES
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.storage import Storage

pytestmark = pytest.mark.usefixtures("impatient")
DATA = os.urandom(PUT_BYTES + 5_000_000)
PLAIN = Answer(503, {"Content-Type": "text/plain"}, b"no healthy upstream")
TABLE = pa.table({f"c{number}": range(number, number + 400_000) for number in range(6)})
EACH_PART = r"partNumber="


def outage(_asked: Asked, _forward: Forward) -> Answer:
    """Answer as a load balancer without servers does, which is not in XML."""
    return PLAIN


def in_body(code: str) -> Fault:
    """Answer with success and an error in the body, as S3 does when the end of an upload takes long."""
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>"
    return lambda *_: Answer(200, {"Content-Type": "application/xml"}, body.encode())


def open_uploads(s3: S3, place: str) -> list[str]:
    """Return the keys to which an upload was begun and not ended."""
    bucket = place.split("/")[2]
    with urllib.request.urlopen(f"{s3.endpoint}/{bucket}?uploads") as answer:
        return re.findall("<Key>(.*?)</Key>", answer.read().decode())


def write(storage: Storage, place: str) -> None:
    """Write the data in pieces; errors as commands show them."""
    with translate_errors(place), storage.open_output(place) as sink:
        for start in range(0, len(DATA), 1_000_003):
            sink.write(DATA[start : start + 1_000_003])


def methods(proxy: Proxy) -> list[str]:
    found = [item.method for item in proxy.asked]
    proxy.asked.clear()
    return found


@pytest.fixture
def parquet(storage: Storage, place: str, proxy: Proxy) -> str:
    """A file of 19 MB in the store."""
    with storage.open_output(place) as sink:
        pq.write_table(TABLE, sink, use_dictionary=False, compression="none", row_group_size=90_000)
    proxy.asked.clear()
    return place


@pytest.mark.parametrize(
    ("path", "faults"),
    [
        (r"\?uploads", [refused(503), outage]),
        (EACH_PART, [refused(500), outage, reset(done=False), reset(done=True), landed(503)]),
        (r"\?uploadId", [refused(503), in_body("InternalError"), outage]),
        (r"\?uploadId", [landed(500)]),
        (r"\?uploadId", [reset(done=True)]),
    ],
    ids=["begin", "parts", "end", "error after the end", "lost answer of the end"],
)
def test_a_write_in_parts_outlives_a_busy_store_and_lost_answers(
    storage: Storage, proxy: Proxy, s3: S3, place: str, path: str, faults: list[Fault]
) -> None:
    proxy.fail("PUT" if path == EACH_PART else "POST", path, *faults)
    write(storage, place)

    assert proxy.unused == 0
    assert storage.read(place) == DATA
    assert open_uploads(s3, place) == []


@pytest.mark.parametrize(
    ("method", "path", "fault", "error"),
    [
        ("POST", r"\?uploads", refused(403), NotAuthorisedError),
        ("POST", r"\?uploads", outage, TimedOutError),
        ("PUT", EACH_PART, refused(403), NotAuthorisedError),
        ("PUT", EACH_PART, outage, TimedOutError),
        ("PUT", EACH_PART, page, StorageError),
        ("PUT", EACH_PART, reset(done=False), TimedOutError),
        ("POST", r"\?uploadId", refused(403), NotAuthorisedError),
        ("POST", r"\?uploadId", refused(404), StorageError),
        ("POST", r"\?uploadId", in_body("InternalError"), TimedOutError),
        ("POST", r"\?uploadId", outage, TimedOutError),
    ],
)
def test_a_write_in_parts_that_fails_leaves_no_object_and_no_upload(
    storage: Storage,
    proxy: Proxy,
    s3: S3,
    place: str,
    method: str,
    path: str,
    fault: Fault,
    error: type[LakeError],
) -> None:
    proxy.fail(method, path, *[fault] * 60)
    with pytest.raises(error):
        write(storage, place)
    proxy.heal()

    assert not storage.exists(place)
    assert open_uploads(s3, place) == []


def test_a_failure_between_two_writes_never_completes_the_object(
    storage: Storage, s3: S3, place: str
) -> None:
    with pytest.raises(KeyboardInterrupt), storage.open_output(place) as sink:
        sink.write(DATA)
        raise KeyboardInterrupt

    assert not storage.exists(place)
    assert open_uploads(s3, place) == []


def test_two_columns_are_read_with_a_request_for_the_footer_and_one_per_place(
    storage: Storage, proxy: Proxy, parquet: str
) -> None:
    with storage.open_input(parquet, size=storage.size(parquet)) as source:
        proxy.asked.clear()
        file = pq.ParquetFile(source, pre_buffer=False)
        assert file.read_row_group(1, ["c1", "c4"]).num_rows == 90_000
    assert methods(proxy) == ["GET"] * 2


@pytest.mark.parametrize(
    "fault",
    [
        refused(503),
        outage,
        reset(done=False),
        reset(done=True),
        cut(announced=True),
        cut(announced=False),
    ],
)
def test_a_read_of_a_part_outlives_a_busy_store_and_a_cut_network(
    storage: Storage, proxy: Proxy, parquet: str, fault: Fault
) -> None:
    proxy.fail("GET", "", fault)
    with storage.open_input(parquet) as source:
        proxy.fail("GET", "", *[fault] * 3)
        assert pq.read_table(source, pre_buffer=False) == TABLE
    assert proxy.unused == 0


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (refused(403), NotAuthorisedError),
        (refused(404), StorageError),
        (outage, TimedOutError),
        (cut(announced=True), TimedOutError),
        (page, StorageError),
    ],
    ids=["403", "404", "outage", "cut", "page"],
)
def test_a_read_that_fails_in_the_middle_is_reported_as_what_it_is(
    storage: Storage, proxy: Proxy, parquet: str, fault: Fault, error: type[LakeError]
) -> None:
    with storage.open_input(parquet) as source:
        proxy.fail("GET", "", *[fault] * 200)
        with pytest.raises(error), translate_errors(parquet):
            pq.read_table(source, pre_buffer=False)


def test_an_object_that_is_replaced_while_it_is_read_is_not_mixed_with_the_old_one(
    storage: Storage, parquet: str
) -> None:
    with storage.open_input(parquet) as source:
        assert isinstance(source, LargeFile)
        with storage.open_output(parquet) as sink:
            pq.write_table(TABLE.slice(1), sink, use_dictionary=False, compression="none")
        with (
            pytest.raises(StorageError, match="changed while it was read"),
            translate_errors(parquet),
        ):
            pq.read_table(source, pre_buffer=False)


def test_a_store_without_ranges_is_left_to_arrows_client(
    storage: Storage, proxy: Proxy, place: str
) -> None:
    storage.write(place, DATA[: 2 * 1024 * 1024])

    def whole(asked: Asked, forward: Forward) -> Answer:
        answer = forward()
        return replace(answer, status=200, headers={**answer.headers, "Content-Range": ""})

    proxy.fail("GET", "", whole)
    with storage.open_input(place) as source:
        assert source.read() == DATA[: 2 * 1024 * 1024]
