"""The number of retries of a request to the catalog, and the waits between them.

Source: Iceberg's Tasks, SnapshotProducer and TableProperties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lake.core.base.clock import Backoff
from lake.core.spec.properties.values import Setting
from lake.core.transaction.run_context import RunContext

# Each wait is up to a tenth longer, as in Iceberg's Tasks.
_JITTER = (1.0, 1.1)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries of a request, and the waits in milliseconds."""

    retries: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str], settings: Sequence[Setting[int]]) -> RetryPolicy:
        """Read the four settings of a policy, in the order of its fields.

        Raises:
            InvalidRequestError: a property has a value that is not allowed.
        """
        return cls(*(setting.of(properties) for setting in settings))

    def backoff(self, context: RunContext) -> Backoff:
        """Return the waits between the requests."""
        bounds = (self.min_wait_ms / 1000, self.max_wait_ms / 1000)
        return Backoff(*bounds, _JITTER, context.clock, context.ids)
