"""An object store that refuses or is busy: what was written goes again, what could not be deleted is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_proxy import Fault, Proxy, refused
from s3_server import S3
from service_line import Service, csv

OLD = ("--older-than", "0s", "--unsafe-retention")


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    with Proxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def faulty(on_s3: Service, proxy: Proxy, tmp_path: Path) -> Service:
    """A table of two files, one of them no longer live, on a store behind the proxy."""
    lake, table = on_s3.line(), on_s3.table()
    lake.ok("ingest", table, csv(tmp_path, "first.csv", id=[0]), "--create")
    lake.ok("ingest", table, csv(tmp_path, "second.csv", id=[1]), "--overwrite")
    properties = {**on_s3.properties, "s3.endpoint": proxy.uri}
    return Service("faulty", properties, tmp_path, on_s3.list_files)


@pytest.mark.parametrize(
    ("method", "path", "fault", "code"),
    [
        ("POST", r"-m0\.avro\?uploads", refused(403), 9),
        ("POST", r"/snap-.*\?uploads", refused(403), 9),
        ("PUT", r"\.parquet\?partNumber", refused(403), 9),
        ("PUT", r"-m0\.avro\?partNumber", refused(503), 10),
        ("PUT", r"\.parquet\?partNumber", refused(500), 10),
    ],
    ids=["manifest", "list", "rows", "busy manifest", "busy rows"],
)
def test_a_write_that_the_store_refuses_leaves_nothing_and_changes_nothing(
    faulty: Service, proxy: Proxy, method: str, path: str, fault: Fault, code: int
) -> None:
    before = faulty.list_files()
    proxy.fail(method, path, *[fault] * 20)
    source = csv(faulty.folder, "third.csv", id=[2])
    result = faulty.line()("--json", "ingest", faulty.table(), source)

    assert result.exit_code == code, result
    assert result.json()["status"] == "failed"
    assert faulty.list_files() == before
    assert faulty.rows() == [(1,)]


def test_a_store_that_is_busy_for_a_moment_is_asked_again(faulty: Service, proxy: Proxy) -> None:
    proxy.fail("GET", r"\.avro", refused(503), refused(503))
    proxy.fail("PUT", r"partNumber", refused(503), refused(500))
    proxy.fail("DELETE", r"\.parquet", refused(503), refused(503))
    faulty.line().ok("ingest", faulty.table(), csv(faulty.folder, "third.csv", id=[2]))
    expired = faulty.line().ok("expire", faulty.table(), *OLD)

    assert proxy.unused == 0
    assert expired["result"]["data_files"] == 1
    assert faulty.rows() == [(1,), (2,)]
    assert faulty.unreferenced() == set()


def test_a_file_that_cannot_be_deleted_is_told_and_the_others_go(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("DELETE", r"\.parquet", *[refused(503)] * 20)
    result = faulty.line()("--json", "expire", faulty.table(), *OLD)

    assert (result.exit_code, result.json()["status"]) == (6, "partial")
    assert result.json()["result"]["failed_deletes"] == 1
    assert result.json()["warnings"]
    assert sum(file.endswith(".parquet") for file in faulty.list_files()) == 2
    assert faulty.rows() == [(1,)]


def test_a_listing_that_fails_hides_no_error_and_takes_no_live_file(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("POST", r"-m0\.avro\?uploads", *[refused(403)] * 20)
    proxy.fail("GET", r"list-type=2.*data", *[refused(403)] * 20)
    source = csv(faulty.folder, "third.csv", id=[2])
    result = faulty.line()("--json", "ingest", faulty.table(), source)

    assert result.exit_code == 9, result
    assert faulty.rows() == [(1,)]
