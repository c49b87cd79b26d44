"""Commands on a table in an S3 store that is as far away as stores are: their requests, and their seconds.

    python tests/bench/store_requests.py [--delay-ms 30] [--rounds 3] [--folder FOLDER]

The store is Versity's gateway on this machine (needs Go); a proxy counts requests and holds back each answer. Prints,
per command, the requests and the median of the seconds.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from shared import parser_of  # noqa: E402
from support.faults.request_counts import Counted, counted, counted_large  # noqa: E402
from support.servers import s3_gateway  # noqa: E402


def main() -> int:
    """Run all rounds and print what commands took."""
    options = parser_of(__doc__, java=False, delay_ms=30).parse_args()
    if reason := s3_gateway.missing():
        print(f"needs {reason}", file=sys.stderr)
        return 2
    server = s3_gateway.Gateway("bench-key", "bench-secret")
    found = defaultdict[str, list[Counted]](list)
    try:
        for _ in range(options.rounds):
            folder = Path(tempfile.mkdtemp(dir=options.folder))
            os.environ["PYICEBERG_HOME"] = str(folder)
            for commands in (counted, counted_large):
                place = Path(tempfile.mkdtemp(dir=folder))
                for one in commands(server, place, delay_seconds=options.delay_ms / 1000):
                    found[one.name].append(one)
    finally:
        server.end()
    print(f"{'command':14} {'requests':>8} {'seconds':>8}")
    for name, each in found.items():
        seconds = statistics.median(one.seconds for one in each)
        print(f"{name:14} {each[-1].requests:8} {seconds:8.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
