"""Loads from a Kafka topic without a broker: where to continue, what a message is, which options are possible."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session
from support.tiers import examples

from lake.core.base.choices import OnGap
from lake.core.base.errors import BadInputError, InvalidRequestError, RefusedError
from lake.core.load.continuous.facts import TopicGap, TopicGaps
from lake.core.load.continuous.kafka.metadata import reader_of, to_batch
from lake.core.load.continuous.kafka.offsets import (
    Topic,
    TopicGapError,
    starting_offsets,
    to_offsets,
)
from lake.core.load.continuous.kafka.options import (
    METADATA,
    KafkaOptions,
    parse_properties,
    parse_skipped,
    parse_start,
)
from lake.core.load.continuous.kafka.spool import Spool, check_of
from lake.core.load.continuous.totals import commit_mark
from lake.core.table.snapshots.streams import StreamEpoch

FAIL, SKIP = OnGap.FAIL, OnGap.SKIP


def topic(*bounds: tuple[int, int], topic_id: str | None = "a") -> Topic:
    return Topic("events", topic_id, dict(enumerate(bounds)))


def test_a_new_stream_begins_with_the_first_messages() -> None:
    start = starting_offsets(topic((3, 9), (0, 0)), None, "s", FAIL)

    assert start.following == {0: 3, 1: 0}
    assert start.gaps == ()


def test_a_stream_continues_after_its_offsets_and_finds_new_partitions() -> None:
    saved = to_offsets(topic((0, 5)), {0: 5})
    start = starting_offsets(topic((2, 9), (1, 4)), json.loads(json.dumps(saved)), "s", FAIL)

    assert start.following == {0: 5, 1: 1}
    assert topic((2, 9), (1, 4)).lag(start.following) == 7


def test_the_lag_counts_what_waits_behind_a_transaction() -> None:
    found = Topic("events", "a", {0: (0, 5), 1: (0, 4)}, {0: 9, 1: 4})

    assert found.lag({0: 5, 1: 2}) == 6
    assert found.readable({0: 5, 1: 2}) == 2
    assert found.open_transactions == {0: (5, 9)}


def test_a_message_to_skip_is_a_partition_and_an_offset() -> None:
    assert [parse_skipped(text) for text in ("2:7", "7")] == [(2, 7), (None, 7)]
    for text in ("", "a:1", "1:", ":1", "-1", "1:2:3", "1:x"):
        with pytest.raises(InvalidRequestError):
            parse_skipped(text)


def test_deleted_messages_are_a_gap_unless_they_were_loaded() -> None:
    saved = to_offsets(topic((0, 9), (0, 9)), {0: 4, 1: 7})
    now = topic((6, 9), (7, 9))

    with pytest.raises(TopicGapError, match="partition 0 was loaded up to offset 4") as failed:
        starting_offsets(now, saved, "s", FAIL)
    skipped = starting_offsets(now, saved, "s", SKIP)

    assert failed.value.result == TopicGaps((TopicGap(0, 4, 6),))
    assert skipped.following == {0: 6, 1: 7}
    assert [gap.partition for gap in skipped.gaps] == [0]


@pytest.mark.parametrize(
    "now",
    [
        topic((0, 9), (0, 9), topic_id="b"),
        topic((0, 9), (0, 6)),
        topic((0, 9)),
        topic((0, 6), (0, 9), topic_id=None),
    ],
    ids=["another id", "a lower end", "fewer partitions", "a lower end without ids"],
)
@pytest.mark.parametrize("on_gap", [FAIL, SKIP])
def test_a_topic_that_was_created_again_is_refused(now: Topic, on_gap: OnGap) -> None:
    saved = to_offsets(topic((0, 9), (0, 9)), {0: 7, 1: 7})

    with pytest.raises(RefusedError, match="was deleted and created again"):
        starting_offsets(now, saved, "s", on_gap)


@pytest.mark.parametrize(
    "saved",
    [
        {"files": 3, "list": "1f"},
        {"other": {"0": 1}},
        {"events": {"0": -1}},
        {"events": {"x": 1}},
        {"events": {"0": True}},
        {"events": {"0": "1"}},
        {"events": [1]},
        {},
    ],
)
def test_offsets_that_are_not_those_of_the_topic_are_refused(saved: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        starting_offsets(topic((0, 9)), saved, "s", SKIP)


@given(st.data())
def test_no_message_is_skipped_or_read_twice_without_a_gap(data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 20))
    end = data.draw(st.integers(first, 40))
    read = data.draw(st.integers(0, end))
    saved = to_offsets(topic((0, end)), {0: read})
    now = topic((first, end))

    start = starting_offsets(now, saved, "s", SKIP)

    assert start.following[0] == max(read, first)
    assert bool(start.gaps) == (read < first)


def options(**changes: Any) -> KafkaOptions:
    return KafkaOptions(**{"topic": "events", "brokers": "h:1", "stream": "s", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a/b"},
        {"topic": ".."},
        {"format": "csv"},
        {"format": "avro"},
        {"avro_schema": "{}"},
        {"commit_interval": 0},
        {"start": "timestamp"},
        {"start_at": 1},
        {"conf": {"isolation.level": "read_uncommitted"}},
        {"conf": {"enable.auto.commit": "true"}},
        {"kafka_metadata": {"k": "value"}},
    ],
)
def test_an_option_that_is_not_possible_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        options(**changes)


def test_settings_are_read_from_a_file_and_a_wrong_line_is_not_quoted() -> None:
    found = parse_properties(["# a", "", "sasl.password = a=b ", "x=1"], "f")

    assert found == {"sasl.password": "a=b", "x": "1"}
    with pytest.raises(InvalidRequestError) as refused:
        parse_properties(["x=1", "secret"], "f")
    assert "line 2 of f" in refused.value.message
    assert "secret" not in refused.value.message


def test_files_are_ordered_by_partition_and_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.continuous.kafka.spool._BUFFERED_BYTES", 10)
    spool = Spool(str(tmp_path), options(), check_of(options()))
    for partition, offset in ((1, 3), (0, 12), (0, 13), (1, 4)):
        spool.add(partition, offset, b'{"p":%d,\n"o":%d}' % (partition, offset))

    rows = [
        json.loads(line) for path in spool.finish() for line in Path(path).read_text().splitlines()
    ]

    assert [(row["p"], row["o"]) for row in rows] == [(0, 12), (0, 13), (1, 3), (1, 4)]
    places = [spool.places[path] for path in sorted(spool.places)]
    numbers = [(name, offset) for name, offsets in places for offset in offsets]
    assert numbers == [("events-0", 12), ("events-0", 13), ("events-1", 3), ("events-1", 4)]
    assert spool.rows == 4


def test_a_start_has_the_names_of_flinks_connector_too() -> None:
    names = ["earliest-offset", "LATEST-OFFSET", "latest", "timestamp"]

    assert [parse_start(name) for name in names] == ["earliest", "latest", "latest", "timestamp"]
    with pytest.raises(InvalidRequestError):
        parse_start("group-offsets")


@pytest.mark.parametrize("value", [b"", b"1", b"[{}]", b"{}{}", b'{"a":1', b"\xff", b"[" * 100_000])
def test_a_value_that_is_not_an_object_is_named(tmp_path: Path, value: bytes) -> None:
    spool = Spool(str(tmp_path), options(), check_of(options()))

    with pytest.raises(BadInputError, match="offset 7 of partition 2 of topic events is not JSON"):
        spool.add(2, 7, value)
    assert spool.finish() == []


def test_a_field_of_a_value_is_not_replaced_by_a_metadata_column(tmp_path: Path) -> None:
    taken = options(kafka_metadata={"id": "key"})
    spool = Spool(str(tmp_path), taken, check_of(taken))

    with pytest.raises(
        BadInputError, match="offset 7 .* cannot be loaded: the value has a field id"
    ):
        spool.add(2, 7, b'{"id": 1}', (b"k",))
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})
    with pytest.raises(InvalidRequestError, match="field id"):
        check_of(options(kafka_metadata={"id": "key"}, format="avro", avro_schema=schema))


class Message:
    """A message as confluent-kafka returns it, without what a producer may leave out."""

    def __init__(self, headers: Any = None) -> None:
        self._headers = headers

    def key(self) -> None:
        return None

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    def topic(self) -> str:
        return "events"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 5


def test_metadata_that_a_message_does_not_have_is_null() -> None:
    columns = {name: name for name in METADATA}
    read = reader_of(columns)
    rows = [read(Message()), read(Message([("a", None), ("a", b"\xff")]))]

    found = to_batch(columns, rows).to_pylist()

    absent = {"key": None, "topic": "events", "partition": 1, "offset": 5, "timestamp": None}
    pairs = [{"key": "a", "value": None}, {"key": "a", "value": b"\xff"}]
    assert found == [{**absent, "headers": None}, {**absent, "headers": pairs}]
    with pytest.raises(BadInputError, match="offset 5 of partition 1 .* header"):
        read(Message(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")))


@pytest.mark.parametrize("schema", ["", "[]", '"string"', '{"type": "record"}', '{"type": "x"}'])
def test_a_schema_that_is_not_one_of_a_record_is_refused(schema: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_of(options(format="avro", avro_schema=schema))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kafka", "t", "--stream", "s"), "--kafka needs --brokers"),
        (("--kafka", "t", "--brokers", "h:1"), "--kafka needs --stream"),
        (("x.csv", "--kafka", "t"), "files and --kafka contradict each other"),
        (("--kafka", "t", "--watch", "x"), "--kafka and --watch contradict each other"),
        (("--kafka", "t", "--state", "x"), "--state and --kafka contradict each other"),
        (("--watch", "x", "--brokers", "h:1"), "--brokers and --watch contradict each other"),
        (("x.csv", "--avro-schema", "x"), "--avro-schema needs --kafka"),
        (("--kafka", "t", "--overwrite"), "--overwrite and --kafka contradict each other"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = CommandLine(tmp_path / "warehouse")("ingest", "db.t", *arguments)

    assert result.exit_code == 2, result
    assert message in result.stderr


def test_without_the_client_the_hint_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    arguments = ("ingest", "db.t", "--kafka", "t", "--brokers", "h:1", "--stream", "s", "--once")

    result = CommandLine(tmp_path / "warehouse")(*arguments)

    assert result.exit_code == 2
    assert "pip install 'lake-iceberg[kafka]'" in result.stderr


@pytest.mark.parametrize("mode", ["--once", "--dry-run"])
def test_a_start_in_the_future_is_refused(tmp_path: Path, mode: str) -> None:
    topic = ("--kafka", "t", "--brokers", "127.0.0.1:1", "--stream", "s")
    words = ("ingest", "db.t", *topic, "--start-at", "2200-01-01T00:00:00Z", mode)

    result = CommandLine(tmp_path / "warehouse")(*words)

    assert result.exit_code == 2, result
    assert "--start-at 2200-01-01T00:00:00" in result.stderr
    assert "is in the future" in result.stderr


class Brokers:
    """Stands for the client of a topic whose first messages were deleted after the first epoch."""

    def __init__(self, _options: KafkaOptions) -> None:
        pass

    def topic(self) -> Topic:
        return topic((6, 9))

    def seek(self, following: dict[int, int]) -> None:
        """Read from these offsets on."""

    def close(self) -> None:
        """Close the connection."""


def test_a_status_reports_a_gap_at_which_the_next_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.continuous.kafka.execute.Client", Brokers)
    lake = CommandLine(tmp_path / "warehouse")
    lake.ok("create", "db.t", "id long")
    opened = open_session(tmp_path / "warehouse")
    epoch = StreamEpoch("s", 1, to_offsets(topic((0, 9)), {0: 4}))
    commit_mark(opened, opened.table("db.t"), "main", epoch)
    words = ("ingest", "db.t", "--kafka", "events", "--brokers", "h:1", "--stream", "s")

    failed = lake("--json", *words, "--dry-run")
    status = lake("--json", *words, "--status")
    shown = lake(*words, "--status")

    gap = {"partition": 0, "offset": 4, "first_offset": 6}
    assert (failed.exit_code, failed.json()["error"]["kind"]) == (7, "gap")
    assert (status.exit_code, status.json()["status"]) == (6, "suspect")
    assert status.json()["result"]["gaps"] == [gap]
    assert status.json()["result"]["lag_messages"] == 3
    assert "offsets 4 to 5 were deleted before they were loaded" in status.json()["warnings"][1]
    assert "found 1 gap; 3 messages left for later" in shown.stdout


JSON_TEXTS = st.text(max_size=5) | st.sampled_from(["\u2028", "\r\n", "\\", "%0A", "é" * 50])
OBJECTS = st.dictionaries(JSON_TEXTS, JSON_TEXTS | st.integers() | st.none(), max_size=3)
MESSAGES = st.lists(
    st.tuples(st.integers(0, 2), OBJECTS | st.just(None), st.sampled_from([None, 0, 2])),
    max_size=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(MESSAGES, st.integers(1, 300), st.booleans())
def test_each_message_is_a_line_of_a_file_of_its_partition_however_often_files_are_written(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[int, dict[str, Any] | None, int | None]],
    buffered: int,
    ascii_only: bool,
) -> None:
    folder, bad = tmp_path_factory.mktemp("spool"), tmp_path_factory.mktemp("bad") / "files"
    chosen = options(bad_files=str(bad))
    expected: dict[str, list[tuple[int, Any]]] = {}
    spool = Spool(str(folder), chosen, check_of(chosen))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lake.core.load.continuous.kafka.spool._BUFFERED_BYTES", buffered)
        for offset, (partition, content, indent) in enumerate(messages):
            text = json.dumps(content, indent=indent, ensure_ascii=ascii_only)
            spool.add(partition, offset, text.encode())
            if content is not None:
                expected.setdefault(f"events-{partition}", []).append((offset, content))
        files = spool.finish()

    found: dict[str, list[tuple[int, Any]]] = {}
    for path in files:
        lines = Path(path).read_bytes().removesuffix(b"\n").split(b"\n")
        name, offsets = spool.places[path]
        found.setdefault(name, []).extend(zip(offsets, map(json.loads, lines), strict=True))
    assert found == expected
    assert sorted(str(path) for path in folder.iterdir()) == files
    loaded = sum(content is not None for _, content, _ in messages)
    assert (spool.rows, spool.set_aside) == (loaded, len(messages) - loaded)
    reasons = sorted(bad.glob("*.reason.txt"))
    assert len(reasons) == spool.set_aside
    for reason in reasons:
        assert reason.read_text() == "the value is not an object\n"
        assert reason.with_name(reason.name.removesuffix(".reason.txt")).read_bytes() == b"null"
