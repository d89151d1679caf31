"""A measured step's seconds by the planner's own terms, from what a profiler saw on one rank.

On a GPU its kernels and copies count, each in the pass that launched it; on processors the outermost operators of each
thread, and collectives from the moment that their backend takes them up. A term's seconds are those in which something
of it ran: what ran beside something else is `hidden by overlap`, what is left of the step is time when `nothing runs`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.runtime import marks
from planner.verify.trace_events import ANNOTATION, COPY, FILL, KERNEL, LAUNCHES, Event

FORWARD, BACKWARD, RECOMPUTATION, UPDATE = "forward compute", "backward compute", "recomputation", "optimizer"
HOST_UPDATE, TO_GPU, TO_HOST, REST = "optimizer on the host", "copies to the GPU", "copies to the host", "rest"
HIDDEN, NOTHING = "hidden by overlap", "nothing runs"
OPERATIONS: Mapping[str, str] = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all", "broadcast": "broadcast", "send_receive": "send and receive",
}  # fmt: skip
PASSES = {marks.FORWARD: FORWARD, marks.BACKWARD: BACKWARD, marks.UPDATE: UPDATE}
TERMS = (*PASSES.values(), RECOMPUTATION, HOST_UPDATE, *OPERATIONS.values(), TO_GPU, TO_HOST, REST)

# Words in the names of operators of torch.distributed, of gloo's work and of NCCL's kernels, the longer ones first.
_CALLED = {
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "allreduce": "all_reduce",
    "all_reduce": "all_reduce", "allgather": "all_gather", "all_gather": "all_gather", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "sendrecv": "all_to_all", "broadcast": "broadcast", "send": "send_receive",
    "recv": "send_receive",
}  # fmt: skip
# torch.optim.Optimizer names its steps so; the update of DeepSpeed on the host is one library call inside.
_HOST_STEPS = "Optimizer.step#DeepSpeedCPU"

Span = tuple[float, float]


@dataclass(frozen=True)
class Spent:
    """Seconds in which something of a term ran, and how many pieces of work that were."""

    seconds: float
    count: int


@dataclass(frozen=True)
class Profile:
    """One step of one rank: `terms` less `hidden` and with `nothing` add up to `seconds`."""

    seconds: float
    terms: Mapping[str, Spent]
    hidden: float
    nothing: float


def profile(events: Sequence[Event], on_gpu: bool) -> Profile:
    """The marked step's seconds by term.

    Raises InputError where no step is marked, and where the step ran `on_gpu` and nothing of one is seen.
    """
    marked = _marks(events)
    if not marked.get(marks.STEP):
        raise InputError("the trace holds no marked step", expected=f"an annotation '{marks.PREFIX}{marks.STEP}'")
    step = marked[marks.STEP][-1]
    spans: dict[str, list[Span]] = {}
    for term, event in _work(events, marked, on_gpu):
        start, end = max(event.start, step[0]), min(event.end, step[1])
        if start < end:
            spans.setdefault(term, []).append((start, end))
    terms = {term: Spent(_covered(spans[term]), len(spans[term])) for term in TERMS if term in spans}
    busy = _covered(span for some in spans.values() for span in some)
    hidden = sum(spent.seconds for spent in terms.values()) - busy
    return Profile(step[1] - step[0], terms, hidden, step[1] - step[0] - busy)


def _marks(events: Iterable[Event]) -> dict[str, list[Span]]:
    """Spans of each mark, in order."""
    found: dict[str, list[Span]] = {}
    for event in events:
        if event.kind == ANNOTATION and event.name.startswith(marks.PREFIX):
            found.setdefault(event.name.removeprefix(marks.PREFIX), []).append((event.start, event.end))
    return {name: sorted(spans) for name, spans in found.items()}


def _work(events: Sequence[Event], marked: Mapping[str, list[Span]], on_gpu: bool) -> Iterable[tuple[str, Event]]:
    """Each piece of work with its term."""
    if on_gpu and not any(event.kind in (KERNEL, COPY) for event in events):
        raise InputError("the profiler saw no kernel", hint="profiling may need rights that this process does not have")
    for event in events:
        if event.kind == ANNOTATION and event.name.startswith(_HOST_STEPS):
            yield HOST_UPDATE, event
    yield from (_on_gpu if on_gpu else _on_processors)(events, marked)


# ── on a GPU ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _on_gpu(events: Sequence[Event], marked: Mapping[str, list[Span]]) -> Iterable[tuple[str, Event]]:
    """Kernels and copies by the moment that they were launched at."""
    launched = {event.correlation: event.start for event in events if event.kind in LAUNCHES and event.correlation}
    calls = _calls(events)
    for event in events:
        moment = launched.get(event.correlation, event.start)
        if event.kind == KERNEL and "nccl" in event.name.lower():
            yield _collective(event.name, moment, calls), event
        elif event.kind == COPY and _between(event.name):
            yield _between(event.name), event
        elif event.kind in (KERNEL, COPY, FILL):
            yield _pass(moment, marked), event


def _collective(kernel: str, moment: float, calls: Iterable[Event]) -> str:
    """The term of a kernel of NCCL or RCCL, by the call that launched it where its name does not tell."""
    called = (operation(call.name) for call in calls if call.start <= moment <= call.end)
    return OPERATIONS.get(operation(kernel) or next(called, ""), REST)


def _between(copy: str) -> str:
    """The term of a copy between host and GPU, as CUDA or ROCm calls it; empty for one inside the GPU."""
    if "HtoD" in copy or "HostToDevice" in copy:
        return TO_GPU
    return TO_HOST if "DtoH" in copy or "DeviceToHost" in copy else ""


# ── on processors ────────────────────────────────────────────────────────────────────────────────────────────────────


def _on_processors(events: Sequence[Event], marked: Mapping[str, list[Span]]) -> Iterable[tuple[str, Event]]:
    """Outermost operators, and what gloo works through.

    Gloo takes calls up in their order, so that the n-th piece of work is the n-th call's; it calls a reduce-scatter an
    all-reduce.
    """
    works = [event for event in events if event.name.startswith("gloo:") and operation(event.name)]
    calls = _calls(events)
    names = calls if len(calls) == len(works) else works
    for name, work in zip(names, works, strict=True):
        yield OPERATIONS.get(operation(name.name), REST), work
    for event in _outermost([*works, *calls, *(event for event in events if event.name.startswith("aten::"))]):
        if event.name.startswith("aten::"):
            yield _pass(event.start, marked), event


def _outermost(events: Iterable[Event]) -> Iterable[Event]:
    """Events that lie in no other one of their thread."""
    ends: dict[str, float] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if event.start >= ends.get(event.thread, float("-inf")):
            ends[event.thread] = event.end
            yield event


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _calls(events: Iterable[Event]) -> list[Event]:
    """The calls of torch.distributed that send tensors."""
    return [event for event in events if event.name.startswith("c10d::") and operation(event.name)]


def operation(name: str) -> str:
    """The collective that a call, gloo's work or a kernel is; empty where it is none that sends tensors."""
    lower = name.lower()
    return next((found for word, found in _CALLED.items() if word in lower), "")


def _pass(moment: float, marked: Mapping[str, list[Span]]) -> str:
    """The pass that holds a moment; checkpointed layers inside backward are recomputed."""
    for name, term in PASSES.items():
        if _inside(moment, marked.get(name, ())):
            again = name == marks.BACKWARD and _inside(moment, marked.get(marks.CHECKPOINTED, ()))
            return RECOMPUTATION if again else term
    return REST


def _inside(moment: float, spans: Sequence[Span]) -> bool:
    """Whether one of the spans, which do not overlap and are in order, holds the moment."""
    place = bisect_right(spans, moment, key=lambda span: span[0]) - 1
    return place >= 0 and moment <= spans[place][1]


def _covered(spans: Iterable[Span]) -> float:
    """Seconds that at least one of the spans holds."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
