"""All tests on a cluster, with a master and with Spark Connect: ``python tests/soak/cluster.py [OPTIONS]``.

The options are pytest's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    root = Path(__file__).parent.parent
    raise SystemExit(pytest.main([str(root / "cluster"), "-m", "", *sys.argv[1:]]))
