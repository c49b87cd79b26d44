"""AWS Glue: every verb on its entries, conflicts, lost answers, and changes of entries at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from services.test_races import appends, race
from support.cli.service_line import ConfiguredLine, Service, csv
from support.faults.faulty_proxy import Answer, Asked, Fault, Proxy, page, reset
from support.servers.glue_server import Glue

from lake.core.table.catalogs.metastores.glue import GlueBackend

# Tables that do not wait long to learn what became of a commit.
QUICK = [
    part
    for text in (
        "commit.retry.min-wait-ms=1",
        "commit.retry.max-wait-ms=5",
        "commit.status-check.min-wait-ms=1",
        "commit.status-check.num-retries=2",
    )
    for part in ("--property", text)
]


@pytest.fixture
def proxy(glue: Glue) -> Iterator[Proxy]:
    with Proxy(glue.uri) as running:
        yield running


@pytest.fixture
def behind(on_glue: Service, glue: Glue, proxy: Proxy) -> Service:
    """A table with one row in it, behind the proxy."""
    first = csv(on_glue.folder, "first.csv", id=[0])
    on_glue.line().ok("ingest", on_glue.table(), first, "--create", *QUICK)
    return replace(on_glue, properties={**on_glue.properties, **glue.properties(proxy.uri)})


def target(asked: Asked) -> str:
    return asked.headers.get("X-Amz-Target", "").removeprefix("AWSGlue.")


def on(action: str, fault: Fault) -> Callable[[Asked, Any], Answer]:
    """Let the first request of an action go through a fault, and others pass."""
    left = [fault]

    def faulty(asked: Asked, forward: Callable[[], Answer]) -> Answer:
        return left.pop()(asked, forward) if left and target(asked) == action else forward()

    return faulty


def fail(proxy: Proxy, action: str, fault: Fault) -> None:
    proxy.fail_from(0, on(action, fault), often=1000)


def refused(code: str) -> Fault:
    def fault(_asked: Asked, _forward: Callable[[], Answer]) -> Answer:
        body = json.dumps({"__type": code, "message": "injected"}).encode()
        return Answer(400, {"Content-Type": "application/x-amz-json-1.1"}, body)

    return fault


def load(service: Service, *options: object, number: int = 1) -> tuple[int, dict[str, Any]]:
    line: ConfiguredLine = service.line()
    source = csv(service.folder, f"{number}.csv", id=[number])
    result = line("--json", "ingest", service.table(), source, *options)
    return result.exit_code, result.json()


def live(service: Service) -> None:
    """Make a table, load it, maintain it, rename it, drop it and register it; PyIceberg reads the rows."""
    lake, table = service.line(), service.table()
    first = csv(service.folder, "first.csv", id=[1, 2, 3], name=["a", "b", "c"])
    lake.ok("ingest", table, first, "--create", "--dry-run")
    lake.ok("ingest", table, first, "--create")
    second = csv(service.folder, "second.csv", id=[3, 4], name=["C", "d"])
    lake.ok("ingest", table, second, "--upsert", "--key", "id")
    lake.ok("alter", table, "--add-column", "note string", "--set", "a=b")
    lake.ok("compact", table, "--rewrite-all")
    expired = lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")
    assert expired["result"]["failed_deletes"] == 0
    rows = [(1, "a", None), (2, "b", None), (3, "C", None), (4, "d", None)]
    assert service.rows() == rows
    assert service.unreferenced() == set()
    assert len(lake.ok("scan", table)["result"]["preview"]) == 4
    assert [row["table"] for row in lake.ok("tables", f"{service.namespace}.*")["result"]["tables"]]

    lake.ok("rename", table, service.table("u"))
    assert service.rows("u") == rows
    dropped = lake.ok("drop", service.table("u"))["result"]["metadata_location"]
    assert lake("show", service.table("u")).exit_code == 7
    lake.ok("register", table, dropped)
    assert service.rows() == rows
    lake.ok("drop", table, "--purge", "--yes")
    assert service.list_files() == set()


def test_every_verb_of_a_tables_life_works(on_glue: Service) -> None:
    live(on_glue)


def test_each_commit_of_two_processes_counts_once(on_glue: Service) -> None:
    race(on_glue, appends(on_glue, 0, 2), appends(on_glue, 2, 2))

    assert [id_ for id_, _ in on_glue.rows()] == [0, 1, 2, 3]
    assert len(on_glue.catalog().load_table(on_glue.table()).metadata.snapshots) == 4


def test_a_conflict_is_tried_again_on_the_new_version(behind: Service, proxy: Proxy) -> None:
    def overtaken(_asked: Asked, forward: Callable[[], Answer]) -> Answer:
        table = behind.catalog().load_table(behind.table())
        with table.transaction() as change:
            change.set_properties(other="writer")
        return forward()

    fail(proxy, "UpdateTable", overtaken)

    assert load(behind)[0] == 0
    proxy.heal()
    assert behind.rows() == [(0,), (1,)]
    assert behind.catalog().load_table(behind.table()).properties["other"] == "writer"
    assert behind.unreferenced() == set()


@pytest.mark.parametrize(
    ("action", "words"),
    [("UpdateTable", ("alter", "--set", "a=b")), ("DeleteTable", ("drop",))],
    ids=["commit", "drop"],
)
def test_a_page_in_place_of_the_answer_is_not_taken_for_the_change(
    behind: Service, proxy: Proxy, action: str, words: tuple[str, ...]
) -> None:
    # As a portal, which answers every copy of a request.
    proxy.fail_from(
        0,
        lambda asked, forward: page(asked, forward) if target(asked) == action else forward(),
        often=99,
    )
    result = behind.line()("--json", words[0], behind.table(), *words[1:])

    assert (result.exit_code, result.json()["status"]) == (5, "unknown"), result.stderr
    proxy.heal()
    assert behind.rows() == [(0,)]
    assert behind.line().ok(words[0], behind.table(), *words[1:])["status"] == "done"


def test_a_page_in_place_of_an_entry_ends_with_a_typed_error(behind: Service, proxy: Proxy) -> None:
    proxy.fail_from(0, page, often=99)
    result = behind.line()("--json", "show", behind.table())

    assert result.exit_code == 7, result.stderr
    assert "the answer is not one of Glue" in result.stderr


@pytest.mark.parametrize("done", [True, False])
def test_after_a_lost_answer_the_entry_shows_the_outcome(
    behind: Service, proxy: Proxy, *, done: bool
) -> None:
    fail(proxy, "UpdateTable", reset(done=done))
    code, document = load(behind, "--run-id", "r")
    proxy.heal()

    # The request is sent once. If it did not arrive, it may still be on its way.
    assert [target(item) for item in proxy.asked].count("UpdateTable") == 1
    assert (code, document["status"]) == ((0, "done") if done else (5, "unknown"))
    assert load(behind, "--run-id", "r")[0] == 0
    assert behind.rows() == [(0,), (1,)]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("InvalidInputException", 7), ("AccessDeniedException", 9), ("ThrottlingException", 0)],
)
def test_a_refusal_is_certain_and_leaves_no_file(
    behind: Service, proxy: Proxy, code: str, exit_code: int
) -> None:
    fail(proxy, "UpdateTable", refused(code))

    assert load(behind)[0] == exit_code
    assert behind.rows() == [(0,)] if exit_code else [(0,), (1,)]
    assert behind.unreferenced() == set()


def test_a_service_that_fails_before_the_commit_changed_nothing(
    behind: Service, proxy: Proxy
) -> None:
    seen: list[str] = []

    def second(asked: Asked, forward: Callable[[], Answer]) -> Answer:
        # A load reads the entry first; the commit reads it again.
        seen.append(target(asked))
        fails = target(asked) == "GetTable" and seen.count("GetTable") == 2
        return refused("InvalidInputException")(asked, forward) if fails else forward()

    proxy.fail_from(0, second, often=1000)

    assert load(behind)[0] == 7
    assert "UpdateTable" not in seen
    assert behind.unreferenced() == set()


def test_a_table_property_does_not_replace_the_location_of_the_metadata(on_glue: Service) -> None:
    lake, table = on_glue.line(), on_glue.table()
    first = csv(on_glue.folder, "first.csv", id=[1])
    lake.ok("ingest", table, first, "--create", "--property", "metadata_location=elsewhere")
    lake.ok("ingest", table, csv(on_glue.folder, "second.csv", id=[2]))

    assert on_glue.rows() == [(1,), (2,)]


def test_a_rename_does_not_lose_a_commit_at_the_same_time(behind: Service, proxy: Proxy) -> None:
    def overtaken(_asked: Asked, forward: Callable[[], Answer]) -> Answer:
        assert load(behind)[0] == 0
        return forward()

    fail(proxy, "CreateTable", overtaken)
    renamed = behind.line()("rename", behind.table(), behind.table("u"))
    proxy.heal()

    assert renamed.exit_code == 4, renamed
    names = [name for _, name in behind.catalog().list_tables(behind.namespace)]
    assert names == ["t"]
    assert behind.rows() == [(0,), (1,)]


@pytest.mark.parametrize("action", ["CreateTable", "UpdateTable", "DeleteTable"])
def test_a_rename_whose_answers_are_lost_leaves_one_name(
    behind: Service, proxy: Proxy, action: str
) -> None:
    fail(proxy, action, reset(done=True))
    renamed = behind.line()("rename", behind.table(), behind.table("u"))
    proxy.heal()
    names = [name for _, name in behind.catalog().list_tables(behind.namespace)]

    assert renamed.exit_code == 0, renamed
    assert names == ["u"]
    assert behind.rows("u") == [(0,)]


@pytest.mark.parametrize("action", ["CreateTable", "UpdateTable"])
@pytest.mark.parametrize(
    ("code", "exit_code"), [("AccessDeniedException", 9), ("ThrottlingException", 10)]
)
def test_a_refused_rename_leaves_the_old_name_only(
    behind: Service, proxy: Proxy, action: str, code: str, exit_code: int
) -> None:
    def denied(asked: Asked, forward: Callable[[], Answer]) -> Answer:
        return refused(code)(asked, forward) if target(asked) == action else forward()

    proxy.fail_from(0, denied, often=1000)
    renamed = behind.line()("rename", behind.table(), behind.table("u"))
    proxy.heal()

    assert renamed.exit_code == exit_code, renamed
    assert [name for _, name in behind.catalog().list_tables(behind.namespace)] == ["t"]
    assert behind.rows() == [(0,)]


def test_a_rename_that_can_take_nothing_back_says_so(behind: Service, proxy: Proxy) -> None:
    def denied(asked: Asked, forward: Callable[[], Answer]) -> Answer:
        is_denied = target(asked) in {"UpdateTable", "DeleteTable"}
        return refused("AccessDeniedException")(asked, forward) if is_denied else forward()

    proxy.fail_from(0, denied, often=1000)
    renamed = behind.line()("rename", behind.table(), behind.table("u"))

    assert renamed.exit_code == 5, renamed
    assert f"{behind.table('u')} may be a second name of the table" in renamed.stderr


def test_an_entry_that_another_rename_took_is_not_taken(behind: Service, proxy: Proxy) -> None:
    def overtaken(_asked: Asked, forward: Callable[[], Answer]) -> Answer:
        catalog: Any = GlueBackend("prod", behind.properties).handle
        old, new = (behind.namespace, "t"), (behind.namespace, "v")
        catalog._take_table(old, catalog._entry(old), new)
        return forward()

    fail(proxy, "UpdateTable", overtaken)
    renamed = behind.line()("rename", behind.table(), behind.table("u"))
    proxy.heal()

    assert renamed.exit_code == 4, renamed
    assert behind.catalog().list_tables(behind.namespace) == []


def test_a_refused_drop_is_certain(behind: Service, proxy: Proxy) -> None:
    fail(proxy, "DeleteTable", refused("AccessDeniedException"))

    assert behind.line()("drop", behind.table(), "--purge", "--yes").exit_code == 9
    assert behind.rows() == [(0,)]


def test_a_refused_registration_is_certain(behind: Service, proxy: Proxy) -> None:
    lake, table = behind.line(), behind.table()
    dropped = lake.ok("drop", table)["result"]["metadata_location"]
    fail(proxy, "CreateTable", refused("AccessDeniedException"))

    assert lake("register", table, dropped).exit_code == 9
    assert lake("register", table, dropped).exit_code == 0


def test_a_drop_whose_answer_is_lost_is_seen(behind: Service, proxy: Proxy) -> None:
    fail(proxy, "DeleteTable", reset(done=True))

    assert behind.line()("drop", behind.table()).exit_code == 0
    assert target(proxy.asked[-1]) == "GetTable"
