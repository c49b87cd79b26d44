"""What a store's own errors mean in lake's words: a store that refuses or is busy is no defect of lake."""

from __future__ import annotations

import re

from lake.core.errors import BadInputError, LakeError, NotAuthorisedError, TimedOutError

# The names are those of the AWS SDK, which Arrow repeats; the numbers stand in for names it does not know.
_REFUSED = re.compile(
    r"access.?denied|HTTP status 40[13]\b|expired.?token|invalid.?access.?key|signature.?does.?not.?match"
    r"|(?:invalid|unrecognized).?client|invalid.?token|authenticationfailed"
    # S3 refuses a token that expired with 400, and says why only in a body that these do not read.
    r"|HTTP status 400\) during (?:Head|Get)",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"slow.?down|throttl|service.?unavailable|internal.?(?:failure|error)|request.?time|network.?connection"
    r"|HTTP status (?:429|5\d\d)\b|timed? ?out\b|timeout was reached",
    re.IGNORECASE,
)
_ANSWERED = re.compile(r"AWS Error|HTTP status \d|google::cloud|azure", re.IGNORECASE)
# What Arrow makes of any refusal that is longer than what it wanted to read.
_MUFFLED = "flush response stream"
_LENGTH = 300


def storage_error(error: OSError) -> LakeError | None:
    """Return what an error of a store means; None where it does not tell."""
    text = " ".join(str(error).split())[:_LENGTH]
    if isinstance(error, PermissionError) or _REFUSED.search(text):
        return NotAuthorisedError(f"the storage refused: {text}")
    if isinstance(error, TimeoutError) or _BUSY.search(text):
        return TimedOutError(f"the storage is too busy: {text}", hint="run the command again")
    if _ANSWERED.search(text):
        return BadInputError(f"the storage cannot do it: {text}")
    return None


def is_refusal(error: BaseException) -> bool:
    """Whether a store may have refused the credentials, so that others could help."""
    known = storage_error(error) if isinstance(error, OSError) else error
    return isinstance(known, NotAuthorisedError) or _MUFFLED in str(known)
