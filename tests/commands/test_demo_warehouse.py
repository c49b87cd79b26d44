"""`lake demo --lake`: tables in every state of neglect, before and after their maintenance."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.cli.health_picture import HealthSession, is_described
from support.tables.iceberg_tables import pyiceberg_catalog

from lake.cli.main import main
from lake.commands.tours import maintenance
from lake.commands.tours.table_maker import TableSpec
from lake.commands.tours.tables import TABLES, make_tables
from lake.core.base.errors import NotFoundError
from lake.core.base.settings import Settings
from lake.core.engine.spark.engine import SparkEngine
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session, open_session

FOLDER = "lake-demo-warehouse"
PICTURE = Path(__file__).parents[1] / "data" / "health.svg"
# What `lake health` names for each table that is not healthy.
NEEDS = {
    "prod.orders": ("bad", {"manifests", "compact", "expire"}),
    "prod.order_items": ("due", {"compact"}),
    "prod.customers": ("due", {"manifests"}),
    "prod.payments": ("due", {"deletes"}),
    "prod.refunds": ("due", {"deletes"}),
    "prod.shipments": ("due", {"compact"}),
    "prod.inventory": ("due", {"compact"}),
    "prod.products": ("due", {"expire"}),
    "prod.prices": ("due", {"expire"}),
    "prod.page_views": ("due", {"manifests"}),
    "staging.clickstream": ("due", {"compact", "expire"}),
    "staging.web_logs": ("due", {"compact", "expire"}),
    "staging.crm_contacts": ("due", {"expire"}),
    "analytics.sessions": ("due", {"manifests", "expire"}),
    "analytics.daily_revenue": ("due", {"expire"}),
    "sensors.readings": ("due", {"compact"}),
    "sensors.alerts": ("due", {"manifests"}),
}
DAMAGED = "prod.erp_export"


@dataclass(frozen=True)
class Demo:
    """A demo that ran: its document, and the health and the keys of the tables that it left."""

    document: dict[str, Any]
    health: dict[str, dict[str, Any]]
    keys: dict[str, list[int]]


@contextlib.contextmanager
def without_spark() -> Iterator[None]:
    """Let a command that starts Spark fail."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SparkEngine, "__init__", refuse)
        yield


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, CommandLine]:
    """A complete demo, and the tables as it made them, which are put back: making them takes most of its time."""
    folder, kept = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("kept") / FOLDER
    lake = CommandLine(folder / FOLDER)

    def made(session: Session, specs: Sequence[TableSpec]) -> None:
        make_tables(session, specs)
        shutil.copytree(lake.warehouse, kept)

    with contextlib.chdir(folder), without_spark(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(maintenance, "make_tables", made)
        document = CommandLine(folder / "warehouse").ok("demo", "--lake")
    left = Demo(document, health(lake), all_keys(lake))
    shutil.rmtree(lake.warehouse)
    shutil.move(kept, lake.warehouse)
    return left, lake


@pytest.fixture(scope="module")
def maintained(demo: tuple[Demo, CommandLine]) -> Demo:
    """A complete demo."""
    return demo[0]


@pytest.fixture(scope="module")
def made(demo: tuple[Demo, CommandLine]) -> CommandLine:
    """The tables as the demo makes them; they are not changed."""
    return demo[1]


@pytest.fixture
def few_tables(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the demo make two small tables only; return their names."""
    few = [spec for spec in TABLES if spec.name in {"prod.suppliers", "sensors.devices"}]
    monkeypatch.setattr(maintenance, "TABLES", few)
    return [spec.name for spec in few]


def health(lake: CommandLine) -> dict[str, dict[str, Any]]:
    rows = lake("--json", "health").json()["result"]["tables"]
    return {row["table"]: row for row in rows}


def keys_of(lake: CommandLine, table: str, key: str) -> list[int]:
    return sorted(row[key] for row in lake.scanned("--select", key, table=table))


def all_keys(lake: CommandLine) -> dict[str, list[int]]:
    readable = [spec for spec in TABLES if spec.name != DAMAGED]
    return {spec.name: keys_of(lake, spec.name, spec.columns[0]) for spec in readable}


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.slow
def test_each_table_has_the_grade_and_the_needs_of_its_state(made: CommandLine) -> None:
    rows = health(made)

    graded = {name: (row["grade"], set(row["needs"])) for name, row in rows.items()}
    healthy = {spec.name: ("good", set[str]()) for spec in TABLES}
    assert graded == healthy | NEEDS | {DAMAGED: (None, set())}
    assert rows[DAMAGED]["error"]["kind"] == "corrupt"
    assert len(TABLES) == 30


@pytest.mark.slow
def test_the_tables_contain_every_kind_of_delete_and_files_of_an_old_partition_spec(
    made: CommandLine,
) -> None:
    rows = health(made)

    for name, kind in (
        ("prod.orders", "equality_delete_files"),
        ("prod.payments", "position_delete_files"),
        ("prod.inventory", "deletion_vectors"),
    ):
        assert rows[name][kind] == rows[name]["delete_files"] > 0, name
    view = made.ok("health", "prod.shipments")["result"]["view"]
    assert view["layout"]["old_spec_files"] == 240


@pytest.mark.slow
def test_the_tables_have_the_rows_of_their_states(made: CommandLine) -> None:
    # Every commit of the stream has 20 new keys, and 10 of the commit before.
    assert keys_of(made, "prod.customers", "order_id") == list(range(60 * 20 + 10))
    deleted = {8 * number + place for number in range(300) for place in (0, 3)}
    assert keys_of(made, "prod.payments", "order_id") == sorted(set(range(4000)) - deleted)
    assert len(keys_of(made, "prod.prices", "product_id")) == 1500
    # PyIceberg reads no equality deletes.
    paid = made.table("prod.payments").scan().to_arrow()["order_id"].to_pylist()
    assert sorted(paid) == keys_of(made, "prod.payments", "order_id")


@pytest.mark.slow
def test_clean_finds_the_orphan_files_of_the_healthy_tables(made: CommandLine) -> None:
    for name, count in (("staging.imports", 40), ("sensors.calibrations", 25)):
        found = made.ok("clean", name, "--max-share", "100%")
        assert found["plan"]["orphans"] == count, found


@pytest.mark.slow
def test_two_warehouses_have_the_same_tables(made: CommandLine, tmp_path: Path) -> None:
    few = [spec for spec in TABLES if spec.name in {"prod.order_items", "prod.payments"}]
    make_tables(open_session(Settings(warehouse=str(tmp_path / "again"))), few)
    again = CommandLine(tmp_path / "again")

    for spec in few:
        columns = list(spec.columns)[:-1]
        one, other = (
            lake.table(spec.name)
            .scan(selected_fields=tuple(columns))
            .to_arrow()
            .sort_by(columns[0])
            for lake in (made, again)
        )
        assert one.equals(other), spec.name


@pytest.mark.slow
def test_the_tour_leaves_every_readable_table_healthy_without_spark(maintained: Demo) -> None:
    result = maintained.document["result"]

    assert maintained.document["status"] == "done"
    assert result["before"] == {"bad": 1, "due": 16, "good": 12, "unreadable": 1}
    assert result["after"] == {"bad": 0, "due": 0, "good": 29, "unreadable": 1}
    rows = maintained.health
    assert {row["grade"] for name, row in rows.items() if name != DAMAGED} == {"good"}
    assert rows[DAMAGED]["error"]["kind"] == "corrupt"


@pytest.mark.slow
def test_the_maintenance_keeps_every_row(maintained: Demo, made: CommandLine) -> None:
    before, after = all_keys(made), maintained.keys
    assert len(before) == len(TABLES) - 1
    assert [name for name in before if before[name] != after[name]] == []


@pytest.mark.slow
def test_the_steps_are_command_lines_that_lake_understands(maintained: Demo) -> None:
    class _ReachedError(NotFoundError):
        """The command line was understood."""

    def reached(_: Settings) -> Any:
        raise _ReachedError("reached")

    commands = [step["command"] for step in maintained.document["result"]["steps"]]
    assert commands == ["lake health", "lake maintain", "lake health --html health.html"]
    for command in commands:
        assert main(shlex.split(command)[1:], open_session=reached) == _ReachedError.exit_code


@pytest.mark.slow
def test_the_tables_take_less_than_200_mb(made: CommandLine) -> None:
    files = [path for path in made.warehouse.rglob("*") if path.is_file()]

    assert sum(path.stat().st_size for path in files) < 200 * 1024 * 1024


@pytest.mark.slow
def test_the_picture_in_the_readme_is_what_lake_health_prints(made: CommandLine) -> None:
    picture = PICTURE.read_text()

    assert is_described(picture)
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    hint = "PYTHONPATH=tests python -m support.cli.health_picture tests/data/health.svg"
    assert HealthSession(made.warehouse.parent).changes(picture) == [], hint
    changed = picture.replace("due      deletes", "good     deletes")
    assert changed != picture
    assert not is_described(changed)


def test_the_readme_shows_the_picture() -> None:
    assert "](tests/data/health.svg)" in (PICTURE.parents[2] / "README.md").read_text()


def test_people_see_both_listings_and_each_step(lake: CommandLine, few_tables: list[str]) -> None:
    ended = lake("demo", "--lake")

    assert ended.exit_code == 0
    titles = [line for line in ended.stdout.splitlines() if line.startswith("$ ")]
    assert titles[0].startswith("$ lake health: 2 good in ")
    assert len(titles) == 2
    assert all(ended.stdout.count(name) == 2 for name in few_tables)
    steps = [line for line in ended.stderr.splitlines() if " lake demo: $ lake " in line]
    assert len(steps) == 3
    assert "next: lake --warehouse lake-demo-warehouse health prod.orders" in ended.stderr


def test_a_second_demo_replaces_the_first_one(
    lake: CommandLine, few_tables: list[str], tmp_path: Path
) -> None:
    lake.ok("demo", "--lake")
    before = files_in(tmp_path / FOLDER)
    lake.ok("demo", "--lake")
    after = files_in(tmp_path / FOLDER)

    assert not {path for path in before & after if path.endswith((".parquet", ".avro"))}
    catalog = pyiceberg_catalog(tmp_path / FOLDER)
    assert len(list(catalog.load_table(few_tables[0]).snapshots())) == 1


@pytest.mark.parametrize(
    "foreign", ["mine.txt", "prod/mine.txt", "prod/own_table/data/1.parquet", "nyc/flights/1"]
)
def test_a_demo_deletes_nothing_that_it_did_not_make(
    lake: CommandLine, few_tables: list[str], tmp_path: Path, foreign: str
) -> None:
    lake.ok("demo", "--lake")
    mine = tmp_path / FOLDER / foreign
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("precious")
    before = files_in(tmp_path / FOLDER)

    refused = lake("--json", "demo", "--lake")

    assert (refused.exit_code, refused.json()["status"]) == (3, "refused")
    assert files_in(tmp_path / FOLDER) == before
    assert mine.read_text() == "precious"


@pytest.mark.parametrize("link", [FOLDER, f"{FOLDER}/prod", f"{FOLDER}/prod/suppliers"])
def test_a_demo_follows_no_link(
    lake: CommandLine, few_tables: list[str], tmp_path: Path, link: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("precious")
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(other)

    refused = lake("--json", "demo", "--lake")

    assert (refused.exit_code, refused.json()["status"]) == (3, "refused")
    assert files_in(other) == {"mine.txt"}


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_stop_ends_the_demo_after_a_commit_and_the_next_one_replaces_it(
    lake: CommandLine,
    few_tables: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit: int,
) -> None:
    # The third commit is one of the maintenance.
    monkeypatch.setattr(maintenance, "TABLES", [*maintenance.TABLES, _two_manifests()])
    sent, send = [], Table.send

    def stopped(*arguments: Any) -> Any:
        sent.append(arguments)
        if len(sent) == commit:
            signal.raise_signal(signal.SIGINT)
        return send(*arguments)

    monkeypatch.setattr(Table, "send", stopped)
    result = lake("demo", "--lake")

    assert result.exit_code == 130
    assert len(sent) == commit
    names = [".".join(name) for name in _tables_in(tmp_path / FOLDER)]
    assert len(names) == min(commit, 3)
    monkeypatch.setattr(Table, "send", send)
    assert lake("demo", "--lake").exit_code == 0


def _two_manifests() -> Any:
    return next(spec for spec in TABLES if spec.name == "staging.returns")


def _tables_in(folder: Path) -> Iterator[tuple[str, ...]]:
    catalog = pyiceberg_catalog(folder)
    for namespace in catalog.list_namespaces():
        yield from catalog.list_tables(namespace)


def test_a_demo_replaces_what_a_killed_one_left(
    lake: CommandLine, few_tables: list[str], tmp_path: Path
) -> None:
    half = tmp_path / FOLDER / "prod/suppliers/data"
    half.mkdir(parents=True)
    (half / "00001.parquet").write_bytes(b"half")
    (tmp_path / FOLDER / "catalog.db-journal").write_bytes(b"half")

    assert lake("demo", "--lake").exit_code == 0
    assert not (half / "00001.parquet").exists()


def test_a_step_says_how_many_tables_failed_and_the_end_says_why(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = [spec for spec in TABLES if spec.name == DAMAGED]
    monkeypatch.setattr(maintenance, "TABLES", damaged)

    document, printed = lake.ok("demo", "--lake"), lake("demo", "--lake")

    assert f"{DAMAGED}: file://" in printed.stderr
    said = {step["command"]: step["did"] for step in document["result"]["steps"]}
    assert said["lake health"] == "1 unreadable"
    assert said["lake maintain"] == "0 actions on 0 of 1 tables"
    assert json.dumps(document["result"]["after"]) == json.dumps(document["result"]["before"])
