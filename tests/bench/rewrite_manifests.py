"""Time `lake manifests` against Iceberg Java's `rewrite_manifests`, whole processes in turn, on copies of one table.

    python tests/bench/rewrite_manifests.py [--files 1000000] [--manifests 5000] [--rounds 3] [--no-java]
                                            [--folder DIR]

Every manifest contains files of all partitions, as those of a streaming writer do. After each run, the live entries
must be the same as before, and the manifests are counted. Memory is the most that the process ever held (VmHWM).
Target: five times as fast as Java, in at most 1 GiB. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402
from support.tables.iceberg_tables import open_session  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import made_once, make_wide  # noqa: E402

from lake.core.table.manifests.api import read_manifests  # noqa: E402
from lake.core.table.manifests.clusters import manifests_per_partition  # noqa: E402
from lake.core.table.snapshots import ancestry  # noqa: E402
from lake.core.table.snapshots.completeness import read_list  # noqa: E402

_CALL = "CALL lake.system.rewrite_manifests(table => 'db.t')"
_COMPARED = ("file_path", "record_count", "sequence_number", "snapshot_id", "partition")


def entries_of(warehouse: Path) -> pa.Table:
    """Return the live entries, and the manifest of each."""
    table = open_session(warehouse).table("db.t")
    head = ancestry.branch_head(table.metadata, ancestry.MAIN)
    assert head is not None
    listed = read_list(table.storage, table.metadata, head)
    columns = (*_COMPARED, "status")
    found = read_manifests(table.storage, listed, table.metadata, columns=columns, live_only=True)
    return found[0].sort_by("file_path")


def rewrite(command: list[str], kept: Path, used: Path, before: pa.Table) -> Run:
    """Run a command on a copy, and check what it left."""
    copy_of(kept, used)
    done = run(command)
    left = entries_of(used)
    if not left.select(_COMPARED).equals(before.select(_COMPARED)):
        raise SystemExit(f"{command}: the live entries are not those of before")
    count = len(pc.unique(left["manifest_path"].cast(pa.string())))
    share = manifests_per_partition(left, left["manifest_path"])
    print(f"    {count} manifests, {share:.2f} of them for each partition")
    return done


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    chosen = parser_of(__doc__, files=1_000_000, manifests=5_000).parse_args()
    make = partial(make_wide, files=chosen.files, manifests=chosen.manifests)
    kept, used = made_once(chosen.folder, f"made-{chosen.files}-{chosen.manifests}", make)
    copy_of(kept, used)
    before = entries_of(used)
    commands = {"lake": lake_command(used, "manifests", "db.t")}
    if not chosen.no_java:
        commands["java"] = java_command(used, _CALL)
    turns = {
        name: partial(rewrite, command, kept, used, before) for name, command in commands.items()
    }
    take_turns(chosen.rounds, turns, ratio=5, peak=1024)


if __name__ == "__main__":
    main()
