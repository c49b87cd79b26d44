"""moto, whose Glue compares the version of an entry that is replaced, as Amazon's does."""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.server import main

_LOCK = threading.Lock()
_update = GlueResponse.update_table


def _update_version(self: GlueResponse) -> Any:
    asked, name = self.parameters.get("VersionId"), self.parameters["TableInput"]["Name"]
    with _LOCK:
        entry = self.glue_backend.get_table(self.parameters["DatabaseName"], name)
        if asked not in {None, entry.as_dict()["VersionId"]}:
            raise JsonRESTError("ConcurrentModificationException", f"not version {asked}")
        return _update(self)


if __name__ == "__main__":
    GlueResponse.update_table = _update_version
    main(sys.argv[1:])
