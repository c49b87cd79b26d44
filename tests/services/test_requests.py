"""How many requests commands make to a store; each takes 20 to 50 ms where tables are in S3."""

from __future__ import annotations

from pathlib import Path

from support.faults.request_counts import counted
from support.servers.s3_server import S3


def test_commands_make_these_requests_to_a_store(gateway: S3, tmp_path: Path) -> None:
    assert {one.name: one.requests for one in counted(gateway, tmp_path)} == {
        "first ingest": 5,
        "second ingest": 8,
        "snapshots": 1,
        "scan --plan": 4,
        "scan": 6,
        "compact": 91,
        "expire": 100,
    }
