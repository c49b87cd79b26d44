"""Names of temporary manifests."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.core.table.flink.manifest_names import END_OF_INPUT, ManifestName, parse_name

JOB, OPERATOR = "33f41cfdfbbbb300c51092f400f1e229", "5c1bd6d270765b3e7a6bffe0969227ac"
SUFFIX = "fb8cce36-53f0-4ad0-9668-8e8d32783fb3"


def test_a_name_contains_job_operator_subtask_attempt_checkpoint_and_counter() -> None:
    found = parse_name(f"s3://b/t/metadata/{JOB}-{OPERATOR}-00003-1-42-00007.avro")

    assert found == ManifestName(
        JOB, OPERATOR, subtask=3, attempt=1, checkpoint_id=42, counter=7, suffix=None
    )


def test_the_dynamic_sinks_names_end_in_a_uuid() -> None:
    found = parse_name(f"{JOB}-{OPERATOR}-00000-0-4-00004-{SUFFIX}.avro")

    assert found is not None
    assert found.suffix == SUFFIX


@pytest.mark.parametrize(
    "name",
    [
        "snap-3212179992965175068-1-2f897c6e-5486-4798-85e4-16c1c9fcd300.avro",
        "2f897c6e-5486-4798-85e4-16c1c9fcd300-m0.avro",
        f".{JOB}-{OPERATOR}-00000-0-4-00004.avro.crc",
        f"{JOB}-{OPERATOR}-00000-0-4-00004.avro.crc",
        f"{JOB}-{OPERATOR}-00000-0-4-00004-.avro",
        f"{JOB}-{OPERATOR}-00000-0-4-0004.avro",
        f"{JOB}-{OPERATOR}-0000-0-4-00004.avro",
        f"{JOB}-{OPERATOR}-00000--1-4-00004.avro",
        f"{JOB}-{OPERATOR}-00000-0-{END_OF_INPUT + 1}-00004.avro",
        f"{JOB}-{OPERATOR}-00000-0-٤-00004.avro",
        f"{JOB.upper()}-{OPERATOR}-00000-0-4-00004.avro",
        f"{JOB}-{OPERATOR}-00000-0-4-00004.avro\n",
        f"{JOB}-{OPERATOR}.avro",
        "",
    ],
)
def test_other_names_are_not_temporary_manifests(name: str) -> None:
    assert parse_name(name) is None


@given(st.integers(0, END_OF_INPUT), st.integers(0, 10**9), st.integers(1, 10**9))
def test_whatever_the_sink_can_write_is_read_back(
    checkpoint: int, attempt: int, counter: int
) -> None:
    # The format string of Iceberg's ManifestOutputFileFactory.
    name = f"{JOB}-{OPERATOR}-{0:05d}-{attempt:d}-{checkpoint:d}-{counter:05d}.avro"

    found = parse_name(name)

    assert found is not None
    assert (found.checkpoint_id, found.attempt, found.counter) == (checkpoint, attempt, counter)


@given(st.text(st.sampled_from("0123456789abcdef-.vro\n"), max_size=120))
def test_no_name_is_taken_apart_wrongly(name: str) -> None:
    found = parse_name(name)

    assert (found is None) or re.match(r"^[0-9a-f]{32}-[0-9a-f]{32}-\d+-\d+-\d+-\d+", name)
