"""The races on PostgreSQL, S3 and REST, longer: two processes load, two others maintain the table.

python tests/soak/races.py [LOADS]        (of each loading process; 50, about 10 minutes)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent / "services" / "test_races.py"


def main() -> int:
    """Run them and return pytest's exit code."""
    count = sys.argv[1] if sys.argv[1:] else "50"
    command = [sys.executable, "-m", "pytest", "-q", str(TESTS)]
    environment = {**os.environ, "LAKE_RACE_COUNT": count}
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
