"""How many requests commands make to a store; each takes 20 to 50 ms where tables are in S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults.request_counts import counted, counted_large, counted_scans
from support.servers.s3_server import S3


# The gateway accepts no session tokens.
@pytest.mark.parametrize(("server", "token"), [("gateway", None), ("s3", "canary-token")])
def test_commands_make_these_requests_to_a_store(
    request: pytest.FixtureRequest, tmp_path: Path, server: str, token: str | None
) -> None:
    store = request.getfixturevalue(server)
    assert {one.name: one.requests for one in counted(store, tmp_path, token=token)} == {
        "first ingest": 5,
        "second ingest": 8,
        "snapshots": 1,
        "scan --plan": 4,
        "scan": 6,
        "compact": 91,
        "expire": 100,
    }


def test_large_files_are_read_and_written_with_few_requests(gateway: S3, tmp_path: Path) -> None:
    assert {one.name: one.requests for one in counted_large(gateway, tmp_path)} == {
        # The file of 23 MB: its begin, three parts and its end.
        "large ingest": 9,
        # Its footer, and two of its columns.
        "large scan": 6,
        # Of three files the footer and three parts each; a file with their row groups, and its footer again.
        "large compact": 36,
    }


def test_scans_of_many_files_make_no_request_that_they_do_not_need(
    gateway: S3, tmp_path: Path
) -> None:
    assert {one.name: one.requests for one in counted_scans(gateway, tmp_path)} == {
        # The metadata, the manifest list and a manifest; then as many files as have the rows.
        "scan --limit 1": 4,
        "scan --limit 6": 6,
        "scan --limit 6 --output": 6,
        "scan of all": 43,
        # A manifest more, and a vector for each of 30 files.
        "scan of all with deletes": 74,
    }
