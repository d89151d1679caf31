"""Names that a rank puts into a profiler's trace, so that its time can be told apart by what the plan counts.

A mark costs a microsecond, and nothing sees it while no profiler runs.
"""

from __future__ import annotations

from typing import Any

PREFIX = "planner: "
STEP, FORWARD, BACKWARD, UPDATE = "step", "forward", "backward", "optimizer_step"
# The layers inside a checkpoint: in backward they run once more.
CHECKPOINTED = "checkpointed layers"


def mark(name: str) -> Any:
    """A context whose span stands in the trace under the prefix and `name`."""
    from torch.profiler import record_function

    return record_function(PREFIX + name)
