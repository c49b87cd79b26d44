"""The sum of the epochs of a stream: counts that one epoch does not know are not known, absent ones are zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.outcome import Outcome, Status
from lake.core.load.continuous.facts import RoutedRows
from lake.core.load.continuous.totals import Totals
from lake.core.load.ingest.facts import IngestResult, RemovalFacts
from lake.core.load.routing.facts import RoutedTable, RouteResult

NUMBERS = st.integers(0, 9)
MAYBE = st.none() | NUMBERS
REMOVED = st.builds(
    RemovalFacts,
    removed_rows=MAYBE,
    removed_rows_at_least=NUMBERS,
    removed_rows_at_most=NUMBERS,
    removed_partitions=st.just([]),
)
RESULTS = st.builds(
    IngestResult,
    rows_read=NUMBERS,
    rows_written=NUMBERS,
    rows_inserted=MAYBE,
    rows_updated=MAYBE,
    rows_rejected=NUMBERS,
    rows_deleted=MAYBE,
    rows_stale=MAYBE,
    rows_skipped=MAYBE,
    deletes_ignored=MAYBE,
    changes_merged=MAYBE,
    data_files=NUMBERS,
    delete_files=NUMBERS,
    bytes_written=NUMBERS,
    removed_files=MAYBE,
    rewritten_files=MAYBE,
    removed=st.none() | REMOVED,
)


def _added(results: Sequence[Any], totals: Totals) -> Totals:
    for result in results:
        totals.add(Outcome(table="db.t", status=Status.DONE, result=result), files=1)
    return totals


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(RESULTS, min_size=1, max_size=4))
def test_each_count_is_the_sum_of_the_epochs_that_have_it(results: list[IngestResult]) -> None:
    totals = _added(results, Totals())
    found: dict[str, list[Any]] = {}
    for result in results:
        for key, value in result.document().items():
            found.setdefault(key, []).append(value)
    found.pop("removed_partitions", None)

    assert totals.rows is not None
    assert totals.rows.document() == {
        key: None if None in values else sum(values) for key, values in found.items()
    }
    assert (totals.epochs, totals.files) == (len(results), len(results))


def test_the_rows_of_each_table_are_summed() -> None:
    table = RoutedTable(table="a", rows=2, created=True, snapshot_id="1", status="done")
    later = RoutedTable(table="a", new_columns=["x"], status="nothing-to-do")
    results = [
        RouteResult(tables=[table], rows_read=2, rows_written=2),
        RouteResult(tables=[later], rows_read=1, rows_rejected=1),
    ]

    totals = _added(results, Totals(tables={}))

    assert totals.rows == RoutedRows(rows_read=3, rows_written=2, rows_rejected=1)
    assert totals.tables == {
        "a": RoutedTable(
            table="a", rows=2, created=True, snapshot_id="1", new_columns=["x"], status="done"
        )
    }
