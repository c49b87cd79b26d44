"""Apache Kafka's own broker as tests use it, in KRaft mode; Maven fetches its jars once (60 MB)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from support.servers.maven import class_path
from support.servers.server_process import HOST, Server, free_port

POM = Path(__file__).parent / "kafka_broker" / "pom.xml"
_JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class KafkaServer:
    """A running broker, which is its own controller; ``address`` is what clients connect to."""

    def __init__(self, listener: str, login: str) -> None:
        """Start it with a second listener (``SASL://host:port``) and the module that checks its passwords."""
        self._folder = tempfile.TemporaryDirectory(prefix="lake-kafka-broker-")
        folder = Path(self._folder.name)
        port, controller = free_port(), free_port()
        self.address = f"{HOST}:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"PLAINTEXT://{HOST}:{port},{listener},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},{listener}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": login,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "auto.create.topics.enable": "false",
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        java = ["java", *_JAVA_OPTIONS, "-cp", class_path("kafka", POM)]
        format_log = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", file]
        subprocess.run(
            [str(part) for part in format_log], check=True, capture_output=True, cwd=folder
        )
        self.server = Server([*java, "kafka.Kafka", file], port, folder / "log", cwd=folder)

    def end(self) -> None:
        """Stop it and remove its files."""
        self.server.end()
        self._folder.cleanup()
