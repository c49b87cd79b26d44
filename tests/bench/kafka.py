"""Messages of a Kafka topic, loaded once: `ingest --kafka --once` against Apache Kafka's own broker.

    python tests/bench/kafka.py [--messages 1000000] [--partitions 4] [--rounds 1]

Needs a JDK and Maven, which fetches the broker's jars once. The messages are JSON objects with two fields. Prints,
per round, the seconds of the whole process, the messages a second, and lake's peak memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from compact import timed
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.servers.kafka_server import KafkaServer
from support.servers.server_process import HOST, free_port
from support.tables.iceberg_tables import make_table

_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="reader";'
_UNFLUSHED = 50_000


def send(address: str, messages: int, partitions: int) -> None:
    """Make topic ``t`` with messages."""
    settings = {"bootstrap.servers": address, "log_level": 0, "linger.ms": 20}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", partitions, 1)])["t"].result()
    producer = Producer(settings)
    for number in range(messages):
        value = json.dumps({"id": number, "name": f"name-{number}"})
        producer.produce("t", value, partition=number % partitions)
        if number % _UNFLUSHED == 0:
            producer.flush()
    assert producer.flush(60) == 0


def main() -> None:
    """Run the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lake-bench-"))
    broker = KafkaServer(f"SASL://{HOST}:{free_port()}", _LOGIN)
    try:
        send(broker.address, chosen.messages, chosen.partitions)
        for _ in range(chosen.rounds):
            warehouse = folder / "warehouse"
            shutil.rmtree(warehouse, ignore_errors=True)
            make_table(warehouse)
            command = [sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--json"]
            command += ["ingest", "db.t", "--kafka", "t", "--brokers", broker.address]
            command += ["--stream", "s", "--once"]
            took, peak, output = timed(command)
            result = json.loads(output)["result"]
            assert result["messages"] == chosen.messages
            print(
                f"{took:.2f} s, {chosen.messages / took:,.0f} messages/s, {peak:.0f} MiB, "
                f"{result['epochs']} epochs",
                flush=True,
            )
    finally:
        broker.end()


if __name__ == "__main__":
    main()
