"""Appends to a hadoop catalog's table again and again, beside others that do the same.

hadoop_racer.py COUNT ARGUMENT…      (the arguments of one `lake`; its exit codes on stdout)
"""

from __future__ import annotations

import contextlib
import io
import sys

from lake.cli.main import main

if __name__ == "__main__":
    codes = []
    for _ in range(int(sys.argv[1])):
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            codes.append(main(sys.argv[2:]))
    sys.stdout.write(" ".join(map(str, codes)))
