"""The Hive metastore: every verb on its entries, locks, lost answers, and several threads and processes at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hive_metastore.ttypes import EnvironmentContext, UnlockRequest
from services.test_glue import QUICK, live
from support.cli.service_line import Service, csv
from thrift.transport.TTransport import TTransportException

from lake.core.table.catalogs.metastores import hive as backend


@pytest.fixture
def table(on_hive: Service) -> Service:
    """A table with one row in it."""
    first = csv(on_hive.folder, "first.csv", id=[0])
    on_hive.line().ok("ingest", on_hive.table(), first, "--create", *QUICK)
    return on_hive


def load(service: Service, *options: object) -> int:
    source = csv(service.folder, "more.csv", id=[1])
    return service.line()("ingest", service.table(), source, *options).exit_code


def test_every_verb_of_a_tables_life_works(on_hive: Service) -> None:
    live(on_hive)


def test_a_new_namespace_is_in_the_warehouse_of_the_catalog(table: Service) -> None:
    location = table.catalog().load_table(table.table()).location()

    assert location == f"file:{table.folder}/tables/{table.namespace}.db/t"
    assert table.list_files()


def test_threads_do_not_read_one_anothers_answers(table: Service) -> None:
    catalog: Any = table.catalog()
    names = [table.table("t"), table.table("none")] * 20
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(catalog.table_exists, names))

    assert found == [True, False] * 20


@pytest.mark.parametrize("done", [True, False])
def test_after_a_lost_answer_the_entry_shows_the_outcome(
    table: Service, monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    replace = backend._Client.replace_entry

    def lost(self: Any, *arguments: Any) -> None:
        if done:
            replace(self, *arguments)
        raise TTransportException(message="injected")

    with monkeypatch.context() as patched:
        patched.setattr(backend._Client, "replace_entry", lost)
        assert load(table, "--run-id", "r") == (0 if done else 5)

    assert load(table, "--run-id", "r") == 0
    assert table.rows() == [(0,), (1,)]


def test_a_commit_whose_lock_has_ended_is_made_again(
    table: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = backend._Client.replace_entry
    left = [True]

    def late(self: Any, *arguments: Any) -> None:
        if left:
            left.pop()
            self.unlock(UnlockRequest(lockid=self.lock_id))
        replace(self, *arguments)

    monkeypatch.setattr(backend._Client, "replace_entry", late)

    assert load(table) == 0
    assert table.rows() == [(0,), (1,)]
    assert table.unreferenced() == set()


def test_without_locks_the_entry_must_still_have_the_metadata_file(
    on_hive: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, table = on_hive.line(), on_hive.table()
    first = csv(on_hive.folder, "first.csv", id=[0])
    lake.ok("ingest", table, first, "--create", "--property", "engine.hive.lock-enabled=false")
    before = on_hive.catalog().load_table(table).metadata_location
    alter = backend.Client.alter_table_with_environment_context
    asked: list[dict[str, str]] = []

    def altered(self: Any, database: str, name: str, entry: Any, context: Any) -> None:
        asked.append(context.properties)
        # Derby cannot compare the texts of parameters.
        kept = {"DO_NOT_UPDATE_STATS": "true"}
        alter(self, database, name, entry, EnvironmentContext(properties=kept))

    monkeypatch.setattr(backend.Client, "alter_table_with_environment_context", altered)

    assert load(on_hive) == 0
    assert asked == [
        {
            "DO_NOT_UPDATE_STATS": "true",
            "expected_parameter_key": "metadata_location",
            "expected_parameter_value": before,
        }
    ]


def test_a_rename_waits_for_the_lock_of_a_commit(
    table: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog: Any = table.catalog()
    with catalog._client as client:
        held = client.lock(catalog._create_lock_request(table.namespace, "t"))
        monkeypatch.setattr("time.sleep", lambda _: None)
        renamed = table.line()("rename", table.table(), table.table("u"))
        client.unlock(UnlockRequest(lockid=held.lockid))

    assert renamed.exit_code == 4, renamed
    assert table.rows() == [(0,)]


def test_types_that_hive_lacks_are_stored(on_hive: Service) -> None:
    columns = ("id long", "at timestamp_ns", "zoned timestamptz_ns")
    lake, table = on_hive.line(), on_hive.table()
    lake.ok("create", table, *columns, "--property", "format-version=3")

    assert len(lake.ok("show", table)["result"]["schema"]["fields"]) == 3


def test_a_later_address_is_used_if_the_first_does_not_answer(table: Service) -> None:
    several = {**table.properties, "uri": f"thrift://127.0.0.1:1,{table.properties['uri']}"}
    found = Service("hive", several, table.folder, table.list_files, table.namespace)

    assert found.line()("show", table.table()).exit_code == 0
