"""`lake ingest --kafka` against Apache Kafka's own broker: each message once, whatever is killed when."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.cli.command_line import CommandLine, Result
from support.cli.forked import started
from support.faults.killed_runs import SENDING, SENT, killed
from support.servers import maven
from support.servers.kafka_server import KafkaServer
from support.servers.server_process import HOST, free_port
from support.tables.iceberg_tables import ids_in, inject, open_session

from lake.core.base.settings import Settings
from lake.core.table.metadata.snapshot_updates import RemoveSnapshots
from lake.core.transaction.session import Session

PASSWORD = "canary-kafka-41c2d7"
WRONG = "canary-kafka-wrong-9e"
_NAMES = itertools.count()
_LOAD = "lake.core.load.continuous.kafka.execute"
_OUTPUT = "lake.core.io.storage.storage"
YEAR_2024_MS = 1_704_067_200_123
METADATA = [
    f"--kafka-metadata={column}={name}"
    for column, name in {
        "k": "key",
        "h": "headers",
        "t": "topic",
        "p": "partition",
        "o": "offset",
        "at": "timestamp",
    }.items()
]
SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


@pytest.fixture(scope="module")
def sasl_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(sasl_port: int) -> Iterator[KafkaServer]:
    """A broker; a second listener asks for a password."""
    if missing := maven.missing():
        if os.environ.get("CI"):
            pytest.fail(f"needs {missing}")
        pytest.skip(f"needs {missing}")
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_reader="{PASSWORD}";'
    )
    server = KafkaServer(f"SASL://{HOST}:{sasl_port}", login)
    yield server
    server.end()


class Topic:
    """A new topic on the broker, and what is sent to it."""

    def __init__(self, broker: KafkaServer, partitions: int = 2) -> None:
        self.name = f"t{next(_NAMES)}"
        self.address = broker.address
        # The clients' logs are of no use when the broker ends.
        settings = {"bootstrap.servers": broker.address, "log_level": 0}
        self.admin = AdminClient(settings)
        self.create(partitions)
        self.producer = Producer(settings)

    def create(self, partitions: int) -> None:
        """Create it, also after it was deleted, which takes the broker a moment."""
        for _ in range(1200):
            made = self.admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name]
            if made.exception() is None:
                return
            assert "already exists" in str(made.exception())
            time.sleep(0.1)
        raise AssertionError("the topic was not deleted")

    def send(self, ids: Sequence[int], *, partition: int | None = None) -> None:
        """Send one JSON object a message, evenly to all partitions."""
        for number in ids:
            at = number % 2 if partition is None else partition
            self.producer.produce(
                self.name, json.dumps({"id": number, "name": f"n{number}"}), partition=at
            )
        assert self.producer.flush(30) == 0

    def send_raw(self, *values: bytes | None, partition: int = 0) -> None:
        """Send values as they are."""
        for value in values:
            self.producer.produce(self.name, value, partition=partition)
        assert self.producer.flush(30) == 0

    def send_with(
        self, value: bytes, key: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> None:
        """Send a value with a key, headers and a time, which is the first of 2024."""
        self.producer.produce(
            self.name, value, key, partition=1, timestamp=YEAR_2024_MS, headers=headers
        )
        assert self.producer.flush(30) == 0

    def delete_messages(self, before: int, partition: int = 0) -> None:
        """Delete the messages of a partition before an offset, as retention does."""
        at = TopicPartition(self.name, partition, before)
        self.admin.delete_records([at])[at].result()

    def arguments(self, *options: object) -> list[object]:
        """Return the command that loads it."""
        start = ["ingest", "db.t", "--kafka", self.name, "--brokers", self.address]
        return [*start, "--stream", "s", "--create", *options]


@pytest.fixture
def topic(broker: KafkaServer) -> Topic:
    return Topic(broker)


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", engine="inline")


def result_of(lake: CommandLine, topic: Topic, *options: object) -> dict[str, Any]:
    found: dict[str, Any] = lake.ok(*topic.arguments("--once", *options))["result"]
    return found


def load_until(lake: CommandLine, topic: Topic, ids: Sequence[int]) -> None:
    """Load until a table has these rows: a broker may write the mark of a transaction after its answer."""
    until = time.monotonic() + 60
    while True:
        result_of(lake, topic)
        if ids_of(lake) == ids or time.monotonic() > until:
            break
    assert ids_of(lake) == ids


def test_each_message_is_loaded_once_and_the_offsets_are_in_the_snapshot(
    lake: CommandLine, topic: Topic
) -> None:
    topic.send(range(100))
    first = lake.ok(*topic.arguments("--once"))
    again = lake.ok(*topic.arguments("--once"))
    topic.send(range(100, 103))
    third = lake.ok(*topic.arguments("--once"))

    assert [item["status"] for item in (first, again, third)] == ["done", "nothing-to-do", "done"]
    assert first["result"]["messages"] == 100
    assert ids_in(lake.warehouse) == list(range(103))
    head = lake.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    stream = json.loads(head.summary.additional_properties["lake.stream"])
    assert (stream["id"], stream["epoch"]) == ("s", 2)
    assert stream["offsets"][topic.name] == third["result"]["offsets"] == {"0": 52, "1": 51}


def test_a_small_commit_size_makes_several_epochs(lake: CommandLine, topic: Topic) -> None:
    topic.send(range(12_000))

    result = result_of(lake, topic, "--commit-size", "100B")

    assert result["epochs"] >= 2
    assert ids_in(lake.warehouse) == list(range(12_000))


def test_only_committed_transactions_are_loaded(lake: CommandLine, topic: Topic) -> None:
    settings = {
        "bootstrap.servers": topic.address,
        "transactional.id": topic.name,
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(30)

    def send(numbers: Sequence[int], end: Callable[[], object] | None) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic.name, json.dumps({"id": number}), partition=0)
        producer.flush(30)
        if end is not None:
            end()

    send([1, 2], producer.commit_transaction)
    send([3], producer.abort_transaction)
    send([4], producer.commit_transaction)
    load_until(lake, topic, [1, 2, 4])
    # Offset 6 is the mark of the last transaction.
    assert result_of(lake, topic)["lag_messages"] == 0
    send([5, 6], None)
    topic.send_raw(b'{"id": 7}')
    open_ = lake.ok(*topic.arguments("--once"))
    assert (open_["result"]["epochs"], open_["result"]["lag_messages"]) == (0, 3)
    assert open_["result"]["open_transactions"] == [{"partition": 0, "offset": 7, "end": 10}]
    assert "3 messages from offset 7 on wait" in open_["warnings"][0]
    producer.commit_transaction()
    load_until(lake, topic, [1, 2, 4, 5, 6, 7])


def test_a_message_is_skipped_and_never_read_again(lake: CommandLine, topic: Topic) -> None:
    topic.send([1], partition=1)
    result_of(lake, topic)
    topic.send_raw(b"not an object")
    failed = lake("--json", *topic.arguments("--once"))

    assert failed.exit_code == 7
    assert "--skip 0:0" in failed.json()["error"]["hint"]
    assert lake(*topic.arguments("--once", "--skip", "0")).exit_code == 2
    metrics = lake.warehouse.parent / "m.prom"
    status = lake.ok(*topic.arguments("--status"))
    assert (status["plan"]["epoch"], status["result"]["lag_messages"]) == (1, 1)
    lake(*topic.arguments("--once", "--metrics-file", metrics))
    assert "lake_ingest_lag_messages{" in metrics.read_text()
    assert result_of(lake, topic, "--skip", "0:0")["messages_skipped"] == ["0:0"]
    assert result_of(lake, topic)["messages_skipped"] == []
    topic.send([2], partition=0)
    result_of(lake, topic)
    assert ids_in(lake.warehouse) == [1, 2]


def ids_of(lake: CommandLine) -> list[int]:
    table = lake.table()
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("point", "location", "loaded"),
    [
        (SENDING, "", 10),
        (SENT, "", 30),
        ((_OUTPUT, "Storage.open_output", "after"), "/data/", 10),
        ((_LOAD, "_TopicLoad._load", "after"), "", 30),
    ],
    ids=["before its commit", "after it", "writing", "reading on"],
)
def test_a_load_that_is_killed_loses_and_doubles_nothing(
    lake: CommandLine, topic: Topic, point: tuple[str, str, str], location: str, loaded: int
) -> None:
    topic.send(range(10))
    result_of(lake, topic)
    topic.send(range(10, 30))

    killed(lake, point, *topic.arguments("--once"), location=location)

    assert ids_in(lake.warehouse) == list(range(loaded))
    second, third = result_of(lake, topic), result_of(lake, topic)
    assert (second["epochs"], third["epochs"]) == (int(loaded < 30), 0)
    assert ids_in(lake.warehouse) == list(range(30))


def test_a_service_that_is_killed_again_and_again_loads_each_message_once(
    lake: CommandLine, topic: Topic
) -> None:
    numbers = itertools.count()
    for pause in (0.4, 0.9, 1.6):
        process = started(lake, *topic.arguments("--commit-interval", "100ms"))
        end = time.monotonic() + pause
        while time.monotonic() < end:
            topic.send([next(numbers) for _ in range(20)])
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.end().exit_code == -signal.SIGKILL
    result_of(lake, topic)

    assert ids_in(lake.warehouse) == list(range(next(numbers)))


def test_a_service_ends_in_order_on_a_signal(lake: CommandLine, topic: Topic) -> None:
    topic.send(range(5))
    metrics = lake.warehouse.parent / "metrics.prom"
    shown = ("--commit-interval", "100ms", "--metrics-file", metrics)
    process = lake.start("--json", *topic.arguments(*shown))
    # The first epoch may contain fewer messages than were sent. A stop before its commit is counted is a failure.
    while not (metrics.exists() and re.search(r"rows_total{.*} 5\n", metrics.read_text())):
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate(timeout=600)

    document = json.loads(output)
    assert process.returncode == 0
    assert document["result"]["stopped_by"] == "signal"
    assert document["result"]["messages"] == 5


@pytest.mark.parametrize("more", [0, 5])
def test_two_runs_at_once_load_each_message_once(
    lake: CommandLine, topic: Topic, more: int
) -> None:
    topic.send(range(10))
    result_of(lake, topic)
    topic.send(range(10, 20))

    def overtaken(settings: Settings) -> Session:
        session = open_session(lake.warehouse)
        session.settings = settings

        def other_run_first(commit: Callable[[], Any]) -> Any:
            topic.send(range(20, 20 + more))
            result_of(lake, topic)
            return commit()

        inject(session, [other_run_first])
        return session

    slow = CommandLine(lake.warehouse, engine="inline", open_session=overtaken)
    document = slow.ok(*topic.arguments("--once"))

    assert ids_in(lake.warehouse) == list(range(20 + more))
    assert (document["result"]["messages"], document["result"]["epochs"]) == (0, 0)
    assert document["status"] == "nothing-to-do"
    assert "another run of stream s committed epoch 2" in document["warnings"][0]
    result_of(lake, topic)
    assert ids_in(lake.warehouse) == list(range(20 + more))


def test_deleted_messages_are_a_gap(lake: CommandLine, topic: Topic) -> None:
    topic.send([0, 1, 2, 3], partition=0)
    result_of(lake, topic)
    topic.send([4, 5, 6, 7], partition=0)
    topic.delete_messages(6)

    failed = lake("--json", *topic.arguments("--once"))
    status = lake("--json", *topic.arguments("--status"))
    skipped = lake("--json", *topic.arguments("--once", "--on-gap", "skip"))

    gap = {"partition": 0, "offset": 4, "first_offset": 6}
    assert failed.exit_code == 7
    assert failed.json()["error"]["kind"] == "gap"
    assert failed.json()["result"]["gaps"] == [gap]
    assert (status.exit_code, status.json()["status"]) == (6, "suspect")
    assert status.json()["result"]["gaps"] == [gap]
    assert skipped.exit_code == 6
    assert skipped.json()["result"]["gaps"] == [gap]
    assert lake.ok(*topic.arguments("--status"))["result"]["gaps"] == []
    assert ids_in(lake.warehouse) == [0, 1, 2, 3, 6, 7]
    assert lake(*topic.arguments("--once")).exit_code == 0


@pytest.mark.parametrize("count", [1, 50])
def test_a_topic_that_was_created_again_is_refused(
    lake: CommandLine, topic: Topic, count: int
) -> None:
    topic.send(range(20))
    result_of(lake, topic)
    topic.admin.delete_topics([topic.name])[topic.name].result()
    topic.create(2)
    topic.send(range(100, 100 + count))

    result = lake(*topic.arguments("--once"))

    assert result.exit_code == 3
    assert "was deleted and created again" in result.stderr
    assert ids_in(lake.warehouse) == list(range(20))


def test_new_partitions_are_loaded_from_their_first_message(
    lake: CommandLine, topic: Topic
) -> None:
    from confluent_kafka.admin import NewPartitions

    topic.send(range(4))
    result_of(lake, topic)
    topic.admin.create_partitions([NewPartitions(topic.name, 4)])[topic.name].result()
    # The broker answers before clients see them. What is sent to a partition that they do not see is lost.
    until = time.monotonic() + 60
    while len(topic.admin.list_topics(topic.name).topics[topic.name].partitions) < 4:
        assert time.monotonic() < until
        time.sleep(0.1)
    # This one knows of the new partitions.
    topic.producer = Producer({"bootstrap.servers": topic.address, "log_level": 0})
    topic.send([10, 11], partition=3)

    load_until(lake, topic, [0, 1, 2, 3, 10, 11])


def avro(number: int) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, SCHEMA, {"id": number, "name": f"n{number}"})
    return buffer.getvalue()


def test_avro_values_are_loaded_and_a_damaged_one_stops_before_it(
    lake: CommandLine, topic: Topic, tmp_path: Path
) -> None:
    schema = tmp_path / "row.avsc"
    schema.write_text(json.dumps(SCHEMA))
    options = ("--format", "avro", "--avro-schema", schema, "--once")
    topic.send_raw(*(avro(number) for number in range(200)), None)
    topic.send_raw(avro(200) + b"\x02", avro(201))

    failed = lake(*topic.arguments(*options))
    assert failed.exit_code == 7
    assert (
        f"the message at offset 201 of partition 0 of topic {topic.name} is not AVRO"
        in failed.stderr
    )
    assert ids_in(lake.warehouse) == list(range(200))
    bad = tmp_path / "bad"
    passed = lake("--json", *topic.arguments(*options, "--bad-files", bad))

    assert passed.exit_code == 6, passed
    assert passed.json()["result"]["messages_set_aside"] == 1
    assert ids_in(lake.warehouse) == [*range(200), 201]
    names = sorted(path.name for path in bad.iterdir())
    assert names == [f"{topic.name}-00000-{201:020d}", f"{topic.name}-00000-{201:020d}.reason.txt"]
    assert (bad / names[0]).read_bytes() == avro(200) + b"\x02"


@pytest.mark.parametrize(
    "value", [b"{", b"[1]", b"\xff", b"", b'{"id": 1}}', '{"id":1}'.encode("utf-16")]
)
def test_a_message_that_is_not_an_object_is_named(
    lake: CommandLine, topic: Topic, value: bytes
) -> None:
    topic.send([0], partition=0)
    topic.send_raw(value)

    result = lake(*topic.arguments("--once"))

    assert result.exit_code == 7
    assert "the message at offset 1 of partition 0" in result.stderr
    assert ids_in(lake.warehouse) == [0]


def test_line_breaks_inside_a_message_do_not_end_its_row(lake: CommandLine, topic: Topic) -> None:
    topic.send_raw(b'{\r\n "id": 1,\n "name": "a\\nb"\n}\n', b'{"id": 2, "name": null}')

    result_of(lake, topic)

    rows = lake.rows()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "name": "a\nb"},
        {"id": 2, "name": None},
    ]


def test_the_last_message_of_a_key_wins_an_upsert(lake: CommandLine, topic: Topic) -> None:
    topic.send_raw(b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}', b'{"id": 1, "name": "c"}')
    by_key = ("--upsert", "--key", "id")
    result_of(lake, topic, *by_key)
    topic.send_raw(b'{"id": 2, "name": "d"}')
    result_of(lake, topic, *by_key)

    rows = lake.rows()
    assert {row["id"]: row["name"] for row in rows} == {1: "c", 2: "d"}
    assert len(rows) == 2


def test_changes_in_messages_move_rows_to_other_partitions(lake: CommandLine, topic: Topic) -> None:
    words = ("--changes-column", "op", "--changes-mode", "upsert", "--deletes", "position")
    words = (*words, "--key", "id", "--sequence", "at", "--partition-by", "name")
    topic.send_raw(*(b'{"op": "+I", "id": %d, "name": "a", "at": 5}' % one for one in (1, 2, 3)))
    result_of(lake, topic, *words)
    topic.send_raw(
        b'{"op": "+U", "id": 1, "name": "b", "at": 6}',
        b'{"op": "-D", "id": 2, "at": 6}',
        b'{"op": "+U", "id": 3, "name": "late", "at": 4}',
    )

    result = result_of(lake, topic, *words)

    assert [result[f"rows_{name}"] for name in ("updated", "deleted", "stale")] == [1, 1, 1]
    rows = lake.rows()
    assert {row["id"]: row["name"] for row in rows} == {1: "b", 3: "a"}


def test_offsets_outlive_the_expiry_of_their_snapshot(lake: CommandLine, topic: Topic) -> None:
    topic.send(range(6))
    result_of(lake, topic)
    lake.ok("ingest", "db.t", "--from-table", "db.t")
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")

    assert result_of(lake, topic)["epochs"] == 0
    topic.send([6])
    result_of(lake, topic)
    assert ids_in(lake.warehouse) == sorted([*range(6), *range(6), 6])


@pytest.mark.parametrize("by", ["lake", "another engine"])
def test_messages_are_not_loaded_again_after_an_expiry_and_a_rollback(
    lake: CommandLine, topic: Topic, by: str
) -> None:
    for ids in ([1], [2]):
        topic.send(ids)
        result_of(lake, topic)
    lake.ok("compact", "db.t", "--rewrite-all")
    topic.send([3])
    result_of(lake, topic)
    if by == "lake":
        lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "2", "--unsafe-retention")
    else:
        table = lake.table()
        gone = [one.snapshot_id for one in table.metadata.snapshots[:-2]]
        table.catalog.commit_table(table, (), (RemoveSnapshots(snapshot_ids=gone),))
    lake.ok("rollback", "db.t", "main~1")
    done = lake("--json", *topic.arguments("--once"))

    assert done.exit_code == (0 if by == "lake" else 3), done.stderr
    assert ids_in(lake.warehouse) == ([1, 2, 3] if by == "lake" else [1, 2])


def test_a_start_at_the_end_is_not_forgotten_after_a_rollback_and_a_commit(
    lake: CommandLine, topic: Topic, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n")
    lake.ok("ingest", "db.t", tmp_path / "rows.csv", "--create")
    words = topic.arguments("--once", "--start", "latest")
    lake.ok(*words)
    lake.ok("rollback", "db.t", "main~1")
    lake.ok("ingest", "db.t", tmp_path / "rows.csv")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    topic.send([2])

    # With a new start, the message that came since the first one would be passed over.
    refused = lake("--json", *words)
    assert refused.exit_code == 3, refused.stderr


def test_a_topic_that_does_not_exist_and_a_stream_of_another_topic_are_refused(
    lake: CommandLine, topic: Topic, broker: KafkaServer
) -> None:
    other = Topic(broker)
    other.send(range(3))
    result_of(lake, other)

    result = lake(*topic.arguments("--once"))

    assert result.exit_code == 3
    assert f"stream s loads {other.name}, not topic {topic.name}" in result.stderr
    topic.name = "missing"
    assert lake(*topic.arguments("--once")).exit_code == 7


def test_a_password_is_taken_from_a_file_and_never_printed(
    lake: CommandLine, topic: Topic, tmp_path: Path, sasl_port: int
) -> None:
    topic.send(range(3))
    topic.address = f"{HOST}:{sasl_port}"
    file = tmp_path / "kafka.conf"

    def run(password: str) -> Result:
        file.write_text(
            "# of the test\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username=reader\nsasl.password={password}\n"
        )
        return lake("-v", *topic.arguments("--once", "--kafka-conf-file", file))

    refused, accepted = run(WRONG), run(PASSWORD)

    assert refused.exit_code == 9, refused
    assert accepted.exit_code == 0, accepted
    assert ids_in(lake.warehouse) == [0, 1, 2]
    for result in (refused, accepted):
        assert WRONG not in result.stdout + result.stderr
        assert PASSWORD not in result.stdout + result.stderr


@pytest.mark.parametrize("start", [("--start", "latest"), ("--start", "latest-offset")])
def test_a_start_at_the_end_is_kept_in_the_table(
    lake: CommandLine, topic: Topic, start: tuple[str, ...]
) -> None:
    topic.send([1, 2])
    words = topic.arguments("--once", *start)
    assert lake("--json", *words).exit_code == 7
    lake.ok(*topic.arguments("--once", "--stream", "other"))
    assert lake.ok(*words)["result"]["messages"] == 0
    topic.send([3, 4])
    assert lake.ok(*words)["result"]["messages"] == 2
    assert lake.ok(*words)["status"] == "nothing-to-do"

    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


def test_a_start_at_a_time_loads_what_was_sent_since(lake: CommandLine, topic: Topic) -> None:
    topic.send([1, 2])
    lake.ok(*topic.arguments("--once", "--stream", "other"))
    time.sleep(1.1)
    since = datetime.now(UTC).isoformat()
    topic.send([3, 4])
    lake.ok(*topic.arguments("--once", "--start-at", since))

    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


def test_messages_that_do_not_fit_are_set_aside_with_their_offsets(
    lake: CommandLine, topic: Topic, tmp_path: Path
) -> None:
    topic.send([1, 2])
    result_of(lake, topic)
    rejects = ("--rejects", tmp_path / "bad.csv")
    topic.send_raw(b'{"id": "x"}', None, b'{"id": "y"}')
    first = result_of(lake, topic, *rejects)
    topic.send_raw(b'{"id": 3}', b'{"id": "z"}')
    second = result_of(lake, topic, *rejects)

    assert [item["rows_rejected"] for item in (first, second)] == [2, 1]
    assert lake.ok(*topic.arguments("--once", *rejects))["status"] == "nothing-to-do"
    assert ids_in(lake.warehouse) == [1, 2, 3]
    files = sorted(tmp_path.glob("bad-epoch-*.csv"))
    found = [row for file in files for row in csv.DictReader(file.open())]
    assert [(row["_file"], row["_line"]) for row in found] == [
        (f"{topic.name}-0", "1"),
        (f"{topic.name}-0", "3"),
        (f"{topic.name}-0", "5"),
    ]


@pytest.mark.parametrize("way", ["--create", "--evolve"])
@pytest.mark.parametrize("option", ["--rejects", "--bad-files"])
def test_messages_of_two_types_do_not_stop_a_stream(
    lake: CommandLine, topic: Topic, tmp_path: Path, way: str, option: str
) -> None:
    if way == "--evolve":
        topic.send([0], partition=1)
        result_of(lake, topic)
    topic.send_raw(b'{"id": 1, "s": "x"}', b'{"id": 2, "s": 5}', b'{"id": [], "s": "y"}')
    topic.send_raw(
        b'{"id": 3, "s": {"a": 1}}', b'{"id": 1e400}', b'{"id": 4, "s": "z"}', partition=1
    )
    failed = lake("--json", *topic.arguments("--once", way))
    assert failed.exit_code == 7
    message = failed.json()["error"]["message"]
    assert f"the message at offset 1 of partition 0 of topic {topic.name}" in message
    assert "/tmp" not in message

    path = tmp_path / ("bad.json" if option == "--rejects" else "bad")
    passed = lake("--json", *topic.arguments("--once", way, option, path))
    assert passed.exit_code == (0 if option == "--rejects" else 6), passed
    assert passed.json()["result"]["rows_rejected"] == 4
    assert passed.json()["result"]["messages_set_aside"] == (0 if option == "--rejects" else 4)
    assert [number for number in ids_in(lake.warehouse) if number] == [1, 4]
    (file,) = tmp_path.glob("bad-epoch-*.json" if option == "--rejects" else "bad/*.json")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted((row["_file"], row["_line"]) for row in found) == [
        (f"{topic.name}-0", 1),
        (f"{topic.name}-0", 2),
        (f"{topic.name}-1", int(way == "--evolve")),
        (f"{topic.name}-1", int(way == "--evolve") + 1),
    ]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("place", ["rejects", "commit"])
@pytest.mark.parametrize(
    ("good", "later"),
    [(range(2, 20), True), (range(0), False)],
    ids=["more messages arrive", "all are bad"],
)
def test_a_load_that_is_killed_keeps_each_bad_message(
    lake: CommandLine,
    topic: Topic,
    tmp_path: Path,
    moment: str,
    place: str,
    good: Sequence[int],
    later: bool,
) -> None:
    rejects = ("--rejects", tmp_path / "bad.csv")
    topic.send([0, 1])
    result_of(lake, topic)
    topic.send_raw(b'{"id": "w"}')
    result_of(lake, topic, *rejects)
    first = set(tmp_path.glob("bad-epoch-*"))
    topic.send(good)
    topic.send_raw(b'{"id": "x"}', b'{"id": "y"}')
    point, location = (SENDING[:2], "") if place == "commit" else (("os", "replace"), "/bad-epoch-")

    killed(lake, (*point, moment), *topic.arguments("--once", *rejects), location=location)

    is_committed = (moment, place) == ("after", "commit")
    assert ids_in(lake.warehouse) == [0, 1, *(good if is_committed else ())]
    if later:
        topic.send_raw(b'{"id": "z"}', b'{"id": 99}')
    second, third = result_of(lake, topic, *rejects), result_of(lake, topic, *rejects)

    assert (second["epochs"], third["epochs"]) == (int(later or not is_committed), 0)
    assert ids_in(lake.warehouse) == sorted([0, 1, *good, *([99] if later else ())])
    files = sorted(tmp_path.glob("bad-epoch-*.csv"))
    assert first < set(files)
    found = [row for file in files for row in csv.DictReader(file.open())]
    places = [(row["_file"], row["_line"]) for row in found]
    wanted = {"w", "x", "y", *(["z"] if later else [])}
    assert {json.loads(row["_row"])["id"] for row in found} == wanted
    assert len(set(places)) == len(wanted)
    # Only messages that were read again with later ones may be in the file of the killed run too.
    is_repeated = later and not is_committed and (moment, place) != ("before", "rejects")
    assert len(places) == len(wanted) + (2 if is_repeated else 0)


def stored_rows(lake: CommandLine) -> list[dict[str, Any]]:
    """Return the rows of the data files: PyIceberg reads lists that are NULL as empty lists."""
    table = lake.table()
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_keys_headers_and_places_of_messages_are_columns(
    lake: CommandLine, topic: Topic, tmp_path: Path, kind: str
) -> None:
    options: tuple[object, ...] = ()
    value = json.dumps({"id": 1, "name": "n1"}).encode()
    if kind == "avro":
        schema = tmp_path / "row.avsc"
        schema.write_text(json.dumps(SCHEMA))
        options, value = ("--format", "avro", "--avro-schema", schema), avro(1)
    headers: list[tuple[str, bytes | None]] = [("a", b"\x00\xff"), ("a", None)]
    topic.send_with(value, b"\xff\x00", headers)
    shown = lake.ok(*topic.arguments("--dry-run", *options, *METADATA))["plan"]
    result_of(lake, topic, *options, *METADATA)
    topic.send_with(value.replace(b"1", b"2") if kind == "json" else avro(2), None, [])
    result_of(lake, topic, *options, *METADATA)

    names = {"k": "key", "h": "headers", "t": "topic", "p": "partition", "o": "offset"}
    assert shown["metadata"] == {**names, "at": "timestamp"}
    place = {"t": topic.name, "p": 1, "at": datetime(2024, 1, 1, 0, 0, 0, 123_000, UTC)}
    pairs = [{"key": "a", "value": b"\x00\xff"}, {"key": "a", "value": None}]
    assert stored_rows(lake) == [
        {"id": 1, "name": "n1", "k": b"\xff\x00", "h": pairs, "o": 0, **place},
        {"id": 2, "name": "n2", "k": None, "h": None, "o": 1, **place},
    ]
    table = lake.table()
    types = {item.name: str(item.field_type) for item in table.schema().fields}
    assert (types["k"], types["p"], types["o"]) == ("binary", "int", "long")
    assert types["at"] == "timestamptz"


def test_a_key_is_text_in_a_column_of_text_and_can_be_the_key_of_an_upsert(
    lake: CommandLine, topic: Topic, tmp_path: Path
) -> None:
    lake.ok("create", "db.t", "id long", "k string")
    by_key = ("--kafka-metadata", "k=key", "--upsert", "--key", "k")
    for number, key in ((1, b"a"), (2, b"b"), (3, b"\xff"), (4, b"a")):
        topic.send_with(json.dumps({"id": number}).encode(), key, [])
    failed = lake("--json", *topic.arguments("--once", *by_key))
    rejects = tmp_path / "bad.csv"
    passed = result_of(lake, topic, *by_key, "--rejects", rejects)

    assert failed.exit_code == 7
    assert "column k" in failed.json()["error"]["message"]
    assert passed["rows_rejected"] == 1
    assert lake.rows(by="id") == [{"id": 2, "k": "b"}, {"id": 4, "k": "a"}]
    (file,) = tmp_path.glob("bad-epoch-*.csv")
    (row,) = csv.DictReader(file.open())
    assert (row["_file"], row["_line"]) == (f"{topic.name}-1", "2")


@pytest.mark.parametrize("mode", ["--once", "--dry-run"])
def test_a_metadata_column_that_does_not_fit_the_table_is_refused(
    lake: CommandLine, topic: Topic, mode: str
) -> None:
    topic.send([1, 2])
    result_of(lake, topic)
    lacks = lake(*topic.arguments(mode, "--kafka-metadata", "at=timestamp"))
    differs = lake(*topic.arguments(mode, "--kafka-metadata", "name=offset"))

    assert (lacks.exit_code, differs.exit_code) == (7, 7)
    assert "has column at (timestamptz), which the table lacks" in lacks.stderr
    assert "has column name as long, the table as string" in differs.stderr
    topic.send([3])
    result_of(lake, topic, "--kafka-metadata", "at=timestamp", "--evolve")
    assert [row["at"] is None for row in lake.rows(by="id")] == [True, True, False]
