"""What a store's own errors mean in lake's words: a store that refuses or is busy is no defect of lake."""

from __future__ import annotations

import errno
import re

from lake.core.errors import BadInputError, LakeError, NotAuthorisedError, TimedOutError

# The names are those of the AWS SDK, which Arrow repeats; the numbers stand in for names it does not know.
_REFUSED = re.compile(
    r"access.?denied|HTTP status 40[13]\b|expired.?token|invalid.?access.?key|signature.?does.?not.?match"
    r"|(?:invalid|unrecognized).?client|invalid.?token|authenticationfailed",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"slow.?down|throttl|service.?unavailable|internal.?(?:failure|error)|request.?time|network.?connection"
    r"|HTTP status (?:429|5\d\d)\b|timed? ?out\b|timeout was reached",
    re.IGNORECASE,
)
_LENGTH = 300
# A name under which nothing can lie.
_NO_PLACE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})


def storage_error(error: OSError) -> LakeError | None:
    """Return what an error of a store means; None where it does not tell."""
    text = " ".join(str(error).split())[:_LENGTH]
    if isinstance(error, PermissionError) or _REFUSED.search(text):
        return NotAuthorisedError(f"the storage refused: {text}")
    if isinstance(error, TimeoutError) or _BUSY.search(text):
        return TimedOutError(f"the storage is too busy: {text}", hint="run the command again")
    if error.errno in _NO_PLACE:
        return BadInputError(f"no file can lie there: {text}")
    return None
