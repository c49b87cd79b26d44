"""`lake ingest --watch` on a bucket: objects are loaded once, and moved or deleted after their commit."""

from __future__ import annotations

from typing import Any

import pytest
from support.cli.service_line import Service
from support.servers.s3_server import S3


def _put(s3: S3, path: str, *ids: int) -> None:
    with s3.files().open_output_stream(path) as file:
        file.write(("id,name\n" + "".join(f"{one},a\n" for one in ids)).encode())


@pytest.mark.parametrize("glob", [False, True])
@pytest.mark.parametrize("done", ["keep", "move", "delete"])
def test_objects_are_loaded_once(on_s3: Service, s3: S3, done: str, *, glob: bool) -> None:
    bucket = s3.bucket()
    folder = f"s3://{bucket}/drop"
    lake = on_s3.line("inline")
    words: tuple[Any, ...] = ("ingest", "db.t", "--create", "--stream", "s", "--once")
    words = (*words, "--watch", f"{folder}/**/*.csv" if glob else folder, "--settle", "0s")
    words = (*words, "--state", on_s3.folder / "state", "--done")
    words = (*words, f"move:{folder}/done" if done == "move" else done)
    _put(s3, f"{bucket}/drop/a b.csv", 1)
    _put(s3, f"{bucket}/drop/day/b.csv", 2, 3)
    _put(s3, f"{bucket}/drop/day/_c.csv", 9)
    lake.ok(*words)
    _put(s3, f"{bucket}/drop/day/d.csv", 4)
    lake.ok(*words)

    assert lake.ok(*words)["status"] == "nothing-to-do"
    rows = on_s3.catalog().load_table("db.t").scan().to_arrow()
    assert sorted(rows.column("id").to_pylist()) == [1, 2, 3, 4]
    left = {file.removeprefix(f"{bucket}/drop/") for file in _files(s3, f"{bucket}/drop")}
    names = {"a b.csv", "day/b.csv", "day/d.csv"}
    kept = {"keep": names, "delete": set(), "move": {f"done/{name}" for name in names}}
    assert left == {"day/_c.csv", *kept[done]}


def _files(s3: S3, folder: str) -> list[str]:
    import pyarrow.fs as pafs

    selector: Any = pafs.FileSelector(folder, recursive=True)
    infos = s3.files().get_file_info(selector)
    return [info.path for info in infos if info.type == pafs.FileType.File]
