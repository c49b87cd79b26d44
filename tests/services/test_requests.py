"""How many requests commands make to a store; each takes 20 to 50 ms where tables are in S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults.request_counts import counted
from support.servers.s3_server import S3


@pytest.mark.parametrize("token", [None, "canary-token"], ids=["keys", "token"])
def test_commands_make_these_requests_to_a_store(
    gateway: S3, tmp_path: Path, token: str | None
) -> None:
    assert {one.name: one.requests for one in counted(gateway, tmp_path, token=token)} == {
        "first ingest": 7,
        "second ingest": 10,
        "snapshots": 1,
        "scan --plan": 4,
        "scan": 6,
        "compact": 133,
        "expire": 140,
    }
