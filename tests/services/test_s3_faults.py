"""An object store that refuses or is busy: written files are removed, failed deletions are reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from xml.sax.saxutils import unescape

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import (
    Answer,
    Asked,
    Fault,
    Forward,
    Proxy,
    landed,
    page,
    refused,
    reset,
)
from support.servers.s3_server import S3

from lake.core.base.clock import Backoff
from lake.core.io.objects import s3 as s3_requests
from lake.core.io.storage import opening
from lake.core.io.storage.opening import ARROW_TRIES
from lake.core.io.storage.storage import Storage
from lake.core.table.metadata import files as metadata_files
from lake.core.transaction.garbage import file_deletion

OLD = ("--older-than", "0s", "--unsafe-retention")


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The attempts after which a command would have waited; it does not."""
    attempts: list[int] = []
    monkeypatch.setattr(Backoff, "wait", lambda _, attempt, **__: attempts.append(attempt))
    monkeypatch.setattr(opening, "ARROW_TRIES", 3)
    return attempts


def failing(names: str, code: str) -> Fault:
    """Answer a bulk delete so for the objects whose names match, and have the rest done."""

    def fault(asked: Asked, forward: Forward) -> Answer:
        keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", asked.body.decode())]
        failed = "".join(
            f"<Error><Key>{key}</Key><Code>{code}</Code><Message>injected</Message></Error>"
            for key in keys
            if re.search(names, key)
        )
        if not failed:
            return forward()
        body = (
            f'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{failed}</DeleteResult>'
        )
        return Answer(200, {"Content-Type": "application/xml"}, body.encode())

    return fault


def open_uploads(service: Service) -> list[str]:
    """Return the keys to which an upload was begun and not ended."""
    parts = urlsplit(service.properties["warehouse"])
    address = f"{service.properties['s3.endpoint']}/{parts.netloc}?uploads"
    with urllib.request.urlopen(address) as answer:
        return re.findall("<Key>(.*?)</Key>", answer.read().decode())


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
        ("PUT", r"-m0\.avro$", refused(403), 9),
        ("PUT", r"/snap-", refused(403), 9),
        ("PUT", r"\.parquet$", refused(403), 9),
        ("PUT", r"-m0\.avro$", refused(503), 10),
        ("PUT", r"\.parquet$", refused(500), 10),
        ("PUT", r"-m0\.avro$", page, 7),
    ],
    ids=["manifest", "list", "rows", "busy manifest", "busy rows", "no store"],
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
    assert open_uploads(faulty) == []
    assert faulty.rows() == [(1,)]


def test_a_store_that_is_busy_for_a_moment_is_asked_again(faulty: Service, proxy: Proxy) -> None:
    proxy.fail("GET", r"\.avro", refused(503), refused(503))
    proxy.fail("PUT", r"\.parquet$", refused(503), refused(500))
    proxy.fail("PUT", r"\.avro", refused(503), refused(429), reset(done=True))
    proxy.fail("POST", r"\?delete", refused(503), refused(429), reset(done=True))
    faulty.line().ok("ingest", faulty.table(), csv(faulty.folder, "third.csv", id=[2]))
    expired = faulty.line().ok("expire", faulty.table(), *OLD)

    assert proxy.unused == 0
    assert expired["result"]["data_files"] == 1
    assert faulty.rows() == [(1,), (2,)]
    assert faulty.unreferenced() == set()


def test_a_store_that_refuses_three_of_ten_requests_ends_no_command(
    on_s3: Service, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "ARROW_TRIES", ARROW_TRIES)
    lake = Service(
        "busy", {**on_s3.properties, "s3.endpoint": proxy.uri}, tmp_path, on_s3.list_files
    )
    line, table = lake.line(), lake.table()
    asked, chance = Counter[str](), Random(5)

    def busy(request: Asked) -> Answer | None:
        asked[request.method] += 1
        status = chance.choice((500, 503)) if chance.random() < 0.3 else 0
        return refused(status)(request, lambda: Answer(0)) if status else None

    proxy.guard = busy
    for number in range(3):
        line.ok("ingest", table, csv(tmp_path, f"{number}.csv", id=[number]), "--create")
    line.ok("compact", table, "--rewrite-all")
    line.ok("expire", table, *OLD)
    checked = line.ok("check", table, "--deep")
    proxy.guard = None

    assert asked.total() > 100
    assert checked["result"]["findings"] == []
    assert sorted(lake.rows()) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("host", ["no-such-host.invalid:9000", "127.0.0.1:9"])
def test_a_host_that_is_not_there_ends_every_command_at_once(
    faulty: Service, waits: list[int], host: str
) -> None:
    properties = {**faulty.properties, "s3.endpoint": f"http://{host}"}
    gone = Service("gone", properties, faulty.folder, faulty.list_files).line()
    waits.clear()

    for verb, *options in (
        ("scan",),
        ("check", "--deep"),
        ("compact", "--rewrite-all"),
        ("expire", *OLD),
    ):
        result = gone(verb, faulty.table(), *options)

        assert result.exit_code == 10, (verb, result)
        assert re.search("host name of the storage|refused the connection", result.stderr), verb
        assert waits == [], verb


_READS = """
import json, sys
from lake.core.base.clock import Backoff
from lake.core.base.errors import LakeError
from lake.core.io.storage import opening
from lake.core.io.storage.storage import Storage
opening.ARROW_TRIES = 2
storage = Storage(json.loads(sys.stdin.read()), backoff=Backoff(0, 0))
for _ in range(3):
    left = b"<!x>" * 25_000
    # Its memory is what the next of its size gets.
    del left
    try:
        storage.read(sys.argv[1])
    except LakeError as error:
        print(error.kind)
"""


def test_an_outage_reported_without_xml_crashes_no_read_of_metadata(s3: S3, proxy: Proxy) -> None:
    # Only Arrow's client, which crashed, reads an object whose name XML cannot represent.
    path = f"{s3.bucket()}/fi\x7fle"
    with s3.files().open_output_stream(path) as sink:
        sink.write(bytes(100_000))
    outage = Answer(503, {"Content-Type": "text/plain"}, b"no healthy upstream")
    proxy.guard = lambda asked: outage if asked.method == "GET" else None

    done = subprocess.run(
        [sys.executable, "-c", _READS, f"s3://{path}"],
        input=json.dumps(s3.properties(proxy.uri)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["timed-out"] * 3


@pytest.mark.parametrize("fault", [page, landed(404)], ids=["page", "404"])
def test_an_empty_listing_of_the_tables_folder_is_an_error(
    faulty: Service, proxy: Proxy, fault: Fault
) -> None:
    source = csv(faulty.folder, "third.csv", id=[2])
    faulty.line().ok("ingest", faulty.table(), source, "--stage", "--run-id", "r")
    replay = ("--json", "replay", faulty.table(), "--job", "r", "--completed", "1")
    proxy.fail("GET", "list-type=2", *[fault] * 20)
    lost = faulty.line()(*replay, "--quiet-time", "0s")
    proxy.heal()
    found = faulty.line()(*replay, "--quiet-time", "0s")

    assert (lost.exit_code, lost.json()["error"]["kind"]) == (7, "storage")
    assert "lists nothing in" in lost.json()["error"]["message"]
    assert found.json()["status"] == "done"
    assert faulty.rows() == [(1,), (2,)]


def test_a_file_that_cannot_be_deleted_is_reported_and_the_others_are_deleted(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("POST", r"\?delete", *[failing(r"\.parquet", "AccessDenied")] * 2)
    result = faulty.line()("--json", "expire", faulty.table(), *OLD)

    assert (result.exit_code, result.json()["status"]) == (6, "partial")
    assert result.json()["result"]["failed_deletes"] == 1
    assert result.json()["result"]["manifests"] > 0
    assert result.json()["warnings"]
    assert sum(file.endswith(".parquet") for file in faulty.list_files()) == 2
    assert faulty.rows() == [(1,)]
    # The next run ends it.
    again = faulty.line().ok("expire", faulty.table(), *OLD)
    assert again["result"]["data_files"] == 1
    assert faulty.unreferenced() == set()


def test_an_answer_that_names_no_file_deletes_none(faulty: Service, proxy: Proxy) -> None:
    proxy.fail("POST", r"\?delete", *[page] * 20)
    result = faulty.line()("--json", "expire", faulty.table(), *OLD)

    assert (result.exit_code, result.json()["status"]) == (6, "partial")
    assert result.json()["result"]["data_files"] == 0
    assert result.json()["result"]["failed_deletes"] > 0


def test_files_for_which_the_store_is_too_busy_are_asked_for_again(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("POST", r"\?delete", failing(r"\.parquet", "SlowDown"))
    expired = faulty.line().ok("expire", faulty.table(), *OLD)

    assert (expired["status"], expired["result"]["failed_deletes"]) == ("done", 0)
    assert expired["result"]["data_files"] == 1
    assert faulty.unreferenced() == set()


def test_a_store_without_bulk_deletes_is_asked_for_each_file(faulty: Service, proxy: Proxy) -> None:
    proxy.fail("POST", r"\?delete", *[refused(501)] * 20)
    expired = faulty.line().ok("expire", faulty.table(), *OLD)

    assert expired["result"]["data_files"] == 1
    assert proxy.times("DELETE", r"\.parquet") == 1
    assert faulty.rows() == [(1,)]


def test_thousands_of_files_go_by_the_thousand(on_s3: Service, proxy: Proxy) -> None:
    storage = Storage({**on_s3.properties, "s3.endpoint": proxy.uri})
    folder = f"{on_s3.properties['warehouse']}/t/data"
    odd = [f"{folder}/{name}" for name in ("a b", "%41", "ä&<>'\"", "x+y=z", "\x01")]
    for location in odd:
        storage.write(location, b"x")
    proxy.asked.clear()
    wanted = [*(f"{folder}/{number}" for number in range(2300)), *odd]
    outcome = storage.delete(wanted)

    assert (outcome.failed, len(outcome.deleted)) == ({}, len(wanted))
    assert proxy.times("POST", r"\?delete") == 3
    # XML has no such character.
    assert proxy.times("DELETE", "") == 1
    assert storage.find(folder, "") == []


@pytest.mark.parametrize(("is_bulk", "batches"), [(True, [8, 8, 4]), (False, [3] * 6 + [2])])
def test_the_table_is_read_before_each_batch_of_deletes(
    faulty: Service,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    is_bulk: bool,
    batches: list[int],
) -> None:
    # Each load of the table reads its metadata from the store, although the catalog names the same file.
    metadata_files._kept.clear()
    monkeypatch.setattr(metadata_files, "_UNIQUE", re.compile("(?!)"))
    monkeypatch.setattr(s3_requests, "MOST_KEYS", 2)
    monkeypatch.setattr(s3_requests.S3, "most_deleted", 8)
    monkeypatch.setattr(file_deletion, "_BATCH", 3)
    folder = faulty.catalog().load_table(faulty.table()).location()
    storage = Storage(faulty.properties)
    for number in range(20):
        storage.write(f"{folder}/data/lost-{number}.parquet", b"x")
    # A store reports its time in whole seconds; younger files are kept.
    time.sleep(1 - time.time() % 1)
    if not is_bulk:
        proxy.fail("POST", r"\?delete", *[refused(501)] * 100)
    proxy.asked.clear()
    done = faulty.line().ok("clean", faulty.table(), "--delete", *OLD, "--max-share", "100%")

    deleted = [0]
    for asked in proxy.asked:
        if asked.method == "GET" and ".metadata.json" in asked.path:
            deleted.append(0)
        elif asked.method == "POST" and is_bulk:
            deleted[-1] += asked.body.count(b"/lost-")
        elif asked.method == "DELETE" and "lost-" in asked.path:
            deleted[-1] += 1
    assert done["result"]["deleted"] == 20
    assert [count for count in deleted if count] == batches
    assert faulty.rows() == [(1,)]


@pytest.mark.parametrize("path", [r"list-type=2", r"-m0\.avro$"], ids=["listing", "manifest"])
def test_nothing_is_cleaned_unless_both_the_listing_and_the_manifests_are_read(
    faulty: Service, proxy: Proxy, path: str
) -> None:
    lost = f"{faulty.catalog().load_table(faulty.table()).location()}/data/lost.parquet"
    Storage(faulty.properties).write(lost, b"x")
    before = faulty.list_files()
    proxy.fail("GET", path, *[refused(403)] * 20)
    failed = faulty.line()("--json", "clean", faulty.table(), "--delete", *OLD)

    assert failed.exit_code == 9, failed
    assert proxy.unused
    assert faulty.list_files() == before


def test_a_listing_that_fails_hides_no_error_and_takes_no_live_file(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("PUT", r"-m0\.avro", *[refused(403)] * 20)
    proxy.fail("GET", r"list-type=2.*[^a]data", *[refused(403)] * 20)
    source = csv(faulty.folder, "third.csv", id=[2])
    result = faulty.line()("--json", "ingest", faulty.table(), source)

    assert result.exit_code == 9, result
    assert faulty.rows() == [(1,)]


@pytest.mark.parametrize(("status", "code"), [(403, 9), (503, 10), (500, 10)])
def test_only_a_file_that_the_store_does_not_find_is_missing(
    faulty: Service, proxy: Proxy, status: int, code: int
) -> None:
    lake, table = faulty.line(), faulty.table()
    lake.ok("ingest", table, csv(faulty.folder, "third.csv", id=[2]))
    loaded = faulty.catalog().load_table(table)
    path, _ = (task.file.file_path for task in loaded.scan().plan_files())
    (lost,) = (task.file for task in loaded.scan().plan_files() if task.file.file_path == path)
    loaded.io.delete(path)
    name = path.rpartition("/")[2]
    line = ("check", table, "--repair", "missing-files", "--yes")

    trouble = Answer(status, {"Content-Type": "application/xml"}, b"")
    proxy.guard = lambda asked: trouble if asked.method == "HEAD" and name in asked.path else None
    failed = lake("--json", *line)
    proxy.guard = lambda _: None

    assert failed.exit_code == code, failed
    assert faulty.catalog().load_table(table).metadata_location == loaded.metadata_location
    (repair,) = lake.ok(*line)["result"]["repairs"]
    assert (repair["data_files"], repair["rows"]) == (1, lost.record_count)
    left = faulty.catalog().load_table(table).scan().to_arrow()
    assert left.num_rows == 1


def nothing(_asked: Asked, _forward: Forward) -> Answer:
    """Answer with success and nothing else."""
    return Answer(200)


@pytest.fixture
def lost(faulty: Service) -> str:
    """A file of the table's folder that no snapshot references."""
    path = f"{faulty.catalog().load_table(faulty.table()).location()}/data/lost.parquet"
    Storage(faulty.properties).write(path, b"lost")
    # A store reports its time in whole seconds; younger files are kept.
    time.sleep(1 - time.time() % 1)
    return path


@pytest.mark.parametrize("fault", [page, nothing], ids=["page", "nothing"])
def test_a_file_is_moved_only_if_the_store_has_copied_it(
    faulty: Service, proxy: Proxy, lost: str, fault: Fault
) -> None:
    storage, lake, table = Storage(faulty.properties), faulty.line(), faulty.table()
    proxy.fail("PUT", "lost", fault)
    moved = lake.ok("clean", table, "--quarantine", *OLD, "--max-share", "100%")["result"]
    assert (proxy.unused, moved["quarantined"], storage.exists(lost)) == (0, 1, False)
    proxy.fail("PUT", "lost", fault)
    restored = lake.ok("clean", table, "--restore", moved["run_id"])["result"]

    assert (proxy.unused, restored["restored"]) == (0, 1)
    assert storage.read(lost) == b"lost"


@pytest.mark.parametrize("number", range(3))
def test_a_file_that_a_store_does_not_list_yet_is_moved_back_and_not_purged(
    faulty: Service, proxy: Proxy, lost: str, number: int
) -> None:
    lists = count()

    def stale(asked: Asked, answer: Answer) -> Answer:
        if "list-type=2" not in asked.path or next(lists) != number:
            return answer
        rest = re.sub(rb"<Contents>(?:(?!</Contents>).)*lost.*?</Contents>", b"", answer.body)
        return replace(answer, body=rest)

    storage, lake, table = Storage(faulty.properties), faulty.line(), faulty.table()
    run = lake.ok("clean", table, "--quarantine", *OLD, "--max-share", "100%")["result"]["run_id"]
    proxy.changes.append(stale)
    restored = lake.ok("clean", table, "--restore", run)

    assert (restored["status"], restored["result"]["restored"]) == ("done", 1)
    assert storage.read(lost) == b"lost"


def test_an_empty_listing_of_the_trash_purges_and_restores_nothing(
    faulty: Service, proxy: Proxy, lost: str
) -> None:
    storage, lake, table = Storage(faulty.properties), faulty.line(), faulty.table()
    run = lake.ok("clean", table, "--quarantine", *OLD, "--max-share", "100%")["result"]["run_id"]
    proxy.fail("GET", "list-type=2", *[page] * 20)
    purged = lake("--json", "clean", table, "--purge", run)
    proxy.heal()

    assert (purged.exit_code, purged.json()["error"]["kind"]) == (7, "storage")
    lake.ok("clean", table, "--restore", run)
    assert storage.read(lost) == b"lost"


@pytest.mark.parametrize("fault", [page, landed(404)], ids=["page", "404"])
def test_an_empty_listing_hides_no_other_catalog_that_continues_the_table(
    faulty: Service, proxy: Proxy, fault: Fault
) -> None:
    table = faulty.table()
    place = faulty.catalog().load_table(table).metadata_location
    database = {"uri": f"sqlite:///{faulty.folder}/other.db"}
    other = replace(faulty, properties={**faulty.properties, **database})
    other.line().ok("register", table, place)
    other.line().ok("ingest", table, csv(faulty.folder, "other.csv", id=[5]))
    lake = faulty.line()
    lake.ok("ingest", table, csv(faulty.folder, "third.csv", id=[2]), "--overwrite")
    proxy.fail("GET", "list-type=2", *[fault] * 20)
    expired = lake("--json", "expire", table, *OLD, "--retain-last", "1")
    proxy.heal()

    assert expired.exit_code == 7, expired
    assert lake("--json", "expire", table, *OLD).exit_code == 3
    assert other.rows() == [(1,), (5,)]
