"""Why a plan for delete files leaves some of them alone, for people and for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lake.core.base.outcome import Explanation
from lake.core.maintain.delete_conversion.facts import KeptDeletesFacts
from lake.core.maintain.delete_conversion.plan import (
    EQUALITY,
    LIMIT,
    ONE_FOR_ITS_FILE,
    ONLY_SMALL_FILE,
    OTHER_PARTITION,
    POSITION,
    RIGHT_SIZE,
    VECTOR,
    DeletePlan,
)
from lake.core.table.manifests.data_files import EQUALITY_DELETES, DeleteFile
from lake.core.table.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_RULES: Mapping[str, str] = {
    EQUALITY: "convert replaces equality deletes",
    POSITION: "rewrite replaces position delete files",
    VECTOR: "a data file has one deletion vector at most",
    OTHER_PARTITION: "its partition has no rows that match where",
    ONE_FOR_ITS_FILE: "it is the only position delete file of its data file",
    RIGHT_SIZE: "it is large enough",
    ONLY_SMALL_FILE: "no other small one is in its partition",
    LIMIT: "max-files leaves it to the next run",
}
_DESCRIBED = 1000


def left_alone(plan: DeletePlan, part: DeletePlan) -> list[KeptDeletesFacts]:
    """Return how many delete files are left alone, by the reason and the kind."""
    files: Counter[tuple[str, str]] = Counter()
    rows: Counter[tuple[str, str]] = Counter()
    for reason, some in _parts(plan, part):
        for item in some:
            files[reason, _kind(item)] += 1
            rows[reason, _kind(item)] += item.record_count
    return [
        KeptDeletesFacts(reason=reason, kind=kind, delete_files=count, rows=rows[reason, kind])
        for (reason, kind), count in files.most_common()
    ]


def explained(plan: DeletePlan, part: DeletePlan) -> Explanation:
    """Return why delete files are left alone, for people; see `left_alone`."""
    return Explanation(
        noun="delete files",
        columns=("reason", "rule", "kind", "delete_files", "rows"),
        groups=[
            (kept.reason, _RULES[kept.reason], kept.kind, kept.delete_files, kept.rows)
            for kept in left_alone(plan, part)
        ],
        item_columns=("reason", "delete_file", "kind", "rows", "bytes"),
        items=lambda: (
            (reason, item.path, _kind(item), item.record_count, item.size_bytes)
            for reason, some in _parts(plan, part)
            for item in some
        ),
    )


def _parts(plan: DeletePlan, part: DeletePlan) -> Iterator[tuple[str, Sequence[DeleteFile]]]:
    """Yield the delete files that are left alone, a few at a time, with the reason."""
    if plan.kept is not None:
        for reason, ordinals in plan.kept.reasons.items():
            for start in range(0, len(ordinals), _DESCRIBED):
                some: npt.NDArray[np.int64] = ordinals[start : start + _DESCRIBED]
                yield reason, plan.kept.index.describe(some)
    if part is not plan:
        done = frozenset(part.chosen)
        yield LIMIT, [item for item in plan.chosen if item not in done]


def _kind(item: DeleteFile) -> str:
    if item.content == EQUALITY_DELETES:
        return EQUALITY
    return VECTOR if item.format == PUFFIN else POSITION
