"""Records that workers send: values as PyArrow converts them, without an import of pandas."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from lake.core.base.arrow import one_row


def test_a_worker_sends_its_results_without_pandas() -> None:
    script = (
        "import sys\n"
        "from lake.core.maintain.compaction import tasks\n"
        "from lake.core.engine.spark import worker\n"
        "from lake.core.table.manifests import api\n"
        "worker._text(['[0,1]'], ['[0,1]'], [])\n"
        "worker._blob_record({'tasks': 't'}, place=1, reducer=2, task=3, blob=b'x')\n"
        "print(sorted({'pandas', 'pyiceberg.catalog'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, pa.int32()),
        (-(2**31), pa.int32()),
        (2**31 - 1, pa.int32()),
        ("", pa.string()),
        ("gruß 🙂\0", pa.string()),
        (b"", pa.binary()),
        (b"\0\xff", pa.binary()),
        (None, pa.int32()),
        (None, pa.string()),
        (None, pa.binary()),
    ],
)
def test_a_cell_holds_the_value_that_pyarrow_makes(value: object, kind: pa.DataType) -> None:
    cell = one_row(pa.schema([("cell", kind)]), {"cell": value})["cell"]

    cell.validate(full=True)
    assert cell.equals(pa.array([value], kind))
    assert cell.null_count == (value is None)
