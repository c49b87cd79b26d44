"""Time `lake check` of a table's metadata: every manifest list, manifest and entry is read.

    python tests/bench/check.py [--files 1000000] [--manifests 5000] [--rewrites 0] [--rounds 3] [--no-java]
                                [--folder DIR]

With ``--rewrites``, the table also has that many snapshots whose own manifests contain all files again.
Iceberg Java has no such command. Beside it, Spark reads and counts the entries and the manifests of the same table,
which is the least that such a check would do; the numbers of entries must be equal. Targets: 15 seconds and 1 GiB
for a million files. Memory is the most that the process ever held (VmHWM). Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from shared import java_command, lake_command, parser_of  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import make_wide  # noqa: E402

# All columns that a check compares are decoded: a count alone would read none of them.
_COUNT = (
    "SELECT count(*) AS entries, sum(data_file.record_count) AS rows,"
    " count(DISTINCT hash(data_file.file_path)) AS files,"
    " (SELECT count(*) FROM lake.db.t.all_manifests) AS manifests FROM lake.db.t.all_entries"
)
# Findings of severity warning: the summaries of these tables are not those of their files.
_WARNINGS = 6


def rewrite(warehouse: Path, times: int) -> None:
    """Rewrite the manifests of the first snapshot several times."""
    for _ in range(times):
        done = json.loads(run(lake_command(warehouse, "manifests", "db.t")).output)
        run(lake_command(warehouse, "rollback", "db.t", done["base_snapshot_id"]))


def check(command: list[str], expected: int) -> Run:
    """Run the check, or the count, and compare the number of entries."""
    done = run(command, codes=(0, _WARNINGS))
    result = json.loads(done.output.splitlines()[-1])["result"]
    found = result[0]["entries"] if isinstance(result, list) else result["entries"]
    if found != expected:
        raise SystemExit(f"{command}: {found} entries instead of {expected}")
    return done


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = parser_of(__doc__, files=1_000_000, manifests=5_000)
    parser.add_argument("--rewrites", type=int, default=0)
    chosen = parser.parse_args()
    warehouse = chosen.folder / f"warehouse-{chosen.files}-{chosen.manifests}-{chosen.rewrites}"
    if not warehouse.exists():
        make_wide(warehouse, chosen.files, chosen.manifests)
        rewrite(warehouse, chosen.rewrites)
    commands = {"lake": lake_command(warehouse, "check", "db.t")}
    if not chosen.no_java:
        commands["spark"] = java_command(warehouse, _COUNT)
    entries = chosen.files * (1 + chosen.rewrites)
    turns = {name: partial(check, command, entries) for name, command in commands.items()}
    take_turns(chosen.rounds, turns, seconds=15, peak=1024)


if __name__ == "__main__":
    main()
