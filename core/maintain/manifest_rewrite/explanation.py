"""Why a rewrite leaves manifests alone, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lake.core.base.outcome import Explanation
from lake.core.maintain.manifest_rewrite.facts import KeptManifestsFacts
from lake.core.maintain.manifest_rewrite.plan import (
    NO_LIVE_FILES,
    NOT_DUE,
    OTHER_SPEC,
    WELL_CLUSTERED,
    WELL_SIZED,
)
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from lake.core.maintain.manifest_rewrite.plan import ManifestPlan

_RULES: Mapping[str, str] = {
    OTHER_SPEC: "spec-id chooses another partition spec",
    NOT_DUE: "the condition is false",
    WELL_CLUSTERED: "a scan of one partition reads few enough of them",
    WELL_SIZED: "they are few enough for their size",
    NO_LIVE_FILES: "the next commit removes them from the list",
}


def left_alone(plan: ManifestPlan) -> list[KeptManifestsFacts]:
    """Return how many manifests are left alone, by the reason, the spec and the content."""
    found = []
    for kept in plan.left_alone:
        keys = ["partition_spec_id", "content"]
        sums = [("manifest_path", "count"), ("manifest_length", "sum")]
        found += [
            KeptManifestsFacts(
                reason=kept.reason,
                spec_id=row["partition_spec_id"],
                content=_content(row["content"]),
                manifests=row["manifest_path_count"],
                bytes=row["manifest_length_sum"] or 0,
            )
            for row in kept.rows.group_by(keys).aggregate(sums).to_pylist()
        ]
    return sorted(found, key=lambda item: (-item.manifests, item.reason, item.spec_id))


def explained(plan: ManifestPlan) -> Explanation:
    """Return why manifests are left alone, for people."""
    return Explanation(
        noun="manifests",
        columns=("reason", "rule", "spec_id", "content", "manifests", "bytes"),
        groups=[
            (
                kept.reason,
                _RULES[kept.reason],
                kept.spec_id,
                kept.content,
                kept.manifests,
                kept.bytes,
            )
            for kept in left_alone(plan)
        ],
        item_columns=("reason", "manifest", "spec_id", "content", "bytes"),
        items=lambda: _manifests(plan),
    )


def _manifests(plan: ManifestPlan) -> Iterator[tuple[Any, ...]]:
    names = ["manifest_path", "partition_spec_id", "content", "manifest_length"]
    for kept in plan.left_alone:
        for batch in kept.rows.select(names).to_batches():
            for path, spec_id, content, size in zip(*map(_list, batch.columns), strict=True):
                yield kept.reason, path, spec_id, _content(content), size


def _list(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


def _content(content: int) -> str:
    return "data" if content == DATA else "deletes"
