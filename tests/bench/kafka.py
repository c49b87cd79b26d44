"""Messages of a Kafka topic, loaded once: `ingest --kafka --once` against Apache Kafka's own broker.

    python tests/bench/kafka.py [--messages 1000000] [--partitions 4] [--rounds 1]

Needs a JDK and Maven, which fetches the broker's jars once. The messages are JSON objects with two fields. Prints,
per round, the seconds of the whole process, the messages a second, and lake's peak memory.
"""

from __future__ import annotations

import json
import shutil

from compact import timed
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from shared import lake_command, parser_of
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
    chosen = parser_of(__doc__, rounds=1, java=False, messages=1_000_000, partitions=4).parse_args()
    folder = chosen.folder
    broker = KafkaServer(f"SASL://{HOST}:{free_port()}", _LOGIN)
    try:
        send(broker.address, chosen.messages, chosen.partitions)
        for _ in range(chosen.rounds):
            warehouse = folder / "warehouse"
            shutil.rmtree(warehouse, ignore_errors=True)
            make_table(warehouse)
            source = ("--kafka", "t", "--brokers", broker.address, "--stream", "s", "--once")
            took, peak, output = timed(lake_command(warehouse, "ingest", "db.t", *source))
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
