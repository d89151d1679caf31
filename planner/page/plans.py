"""Plans as the page's script reads them: figures as numbers to draw with, and every text ready to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.answer import plan_answer
from planner.evaluate import Evaluation
from planner.ledger import DeviceLedger, Line, Moment
from planner.page.timeline import ROWS, STATES, timeline
from planner.plot.picture import point_lines
from planner.terms import BOOKS, PHASES, WINDOWS
from planner.time_lines import StepTime
from planner.units import format_bytes, format_seconds

Entry = dict[str, Any]
PLACES: Mapping[str, str] = {"gpu": "One GPU", "host": "Host memory of one node", "nvme": "NVMe of one node"}
VERDICTS: Mapping[str, str] = {"fits": "fits", "risky": "fits, within the allocator's margin", "no": "does not fit"}
RANK = ("fits", "risky", "no")


class Strings:
    """Texts that many plans share, each once, by the number that stands for it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The text's number."""
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


class Plans:
    """The plans of a page, each once, by the number that the page calls it by."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.meanings: dict[str, dict[str, str]] = {}
        self.strings = Strings()
        self._numbers: dict[object, int] = {}

    def number(self, found: Evaluation) -> int:
        """The plan's number; a plan of the same machine and length that is there already keeps its own."""
        key = (job_line(found), found.job.cluster.node.host_memory, found.plan)
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(plan_entry(found, self.strings))
            self._learn(found)
        return self._numbers[key]

    def _learn(self, found: Evaluation) -> None:
        """What the plan's techniques do, in the catalog's words."""
        techniques = found.job.techniques
        for name in techniques.choices:
            entry = techniques.entry(name, found.values[name])
            if entry is not None:
                self.meanings.setdefault(name, {})[str(found.values[name])] = entry.summary


def plan_entry(found: Evaluation, strings: Strings) -> Entry:
    """One plan with everything that the page shows of it; names are the numbers of strings."""
    values = {name: value for name, value in plan_answer(found.values).items() if not _needless(name, value)}
    held = [one for one in found.ledger.values() if one.device == "gpu" or one.peak.total]
    return {
        "job": job_line(found),
        "summary": list(point_lines(found)),
        "verdict": verdict_text(found),
        "fits": not found.violations,
        "broken": [item.because for item in found.violations],
        "figures": figures(found),
        "choices": [[strings.number(name), strings.number(str(value))] for name, value in values.items()],
        "devices": [device_entry(one, strings) for one in held],
        "time": time_entry(found, strings),
        "file": configuration(found),
    }


def _needless(name: str, value: object) -> bool:
    """Whether a degree of parallelism goes without saying."""
    return name.endswith("_parallel") and value == 1


def job_line(found: Evaluation) -> str:
    """Model, machines and batch of the plan's job."""
    job, training = found.job, found.job.training
    return (
        f"{job.architecture.name} on {job.cluster.nodes} × {job.cluster.node.key}, {training.global_batch} sequences "
        f"of {training.sequence_length:,} tokens, {training.precision.key}, {training.optimizer.key}, {training.method}"
    )


def verdict_text(found: Evaluation) -> str:
    """The worst verdict of all devices, in words; a plan that breaks another rule does not fit either."""
    worst = max((one.verdict for one in found.ledger.values()), key=RANK.index)
    return VERDICTS["no" if found.violations else worst]


def figures(found: Evaluation) -> list[list[str]]:
    """What people look for first, with names."""
    low, high = format_seconds(found.low_seconds), format_seconds(found.high_seconds)
    gpu, host = found.ledger["gpu"], found.ledger["host"]
    return [
        ["Step time", f"{format_seconds(found.step_time.seconds)}", f"{low} to {high}"],
        ["GPU memory", format_bytes(gpu.peak.total), f"of {format_bytes(gpu.capacity.planned)}, in {gpu.peak.phase}"],
        ["Host memory", format_bytes(host.peak.total), f"of {format_bytes(host.capacity.planned)} per node"],
        ["Speed", f"{found.tokens_per_second_per_gpu:,.0f} tokens/s", "per GPU"],
        ["Of peak", f"{found.model_flops_utilization:.0%}", "in model FLOPs"],
    ]


def device_entry(found: DeviceLedger, strings: Strings) -> Entry:
    """One device over the phases; `scale` is the most bytes that its column must have room for."""
    capacity = found.capacity
    return {
        "device": found.device,
        "place": PLACES[found.device],
        "verdict": VERDICTS[found.verdict],
        "peak": PHASES.index(found.peak.phase),
        "usable": capacity.usable,
        "planned": capacity.planned,
        "usable_text": format_bytes(capacity.usable),
        "planned_text": format_bytes(capacity.planned),
        "scale": max(capacity.usable, found.peak.total),
        "phases": [_phase(moment, capacity.planned, strings) for moment in found.phases.values()],
    }


def _phase(moment: Moment, planned: int, strings: Strings) -> Entry:
    """One phase: bytes by book in their order, the same as text, and the lines from large to small."""
    over = moment.total - planned
    lines = sorted(moment.lines, key=lambda line: -line.bytes)
    return {
        "text": format_bytes(moment.total),
        "over": f"{format_bytes(over)} over" if over > 0 else "",
        "books": list(moment.books.values()),
        "texts": [format_bytes(size) if size else "" for size in moment.books.values()],
        "lines": [_line(line, strings) for line in lines],
    }


def _line(line: Line, strings: Strings) -> list[str | int]:
    return [strings.number(line.name), BOOKS.index(line.book), format_bytes(line.bytes)]


def time_entry(found: Evaluation, strings: Strings) -> Entry:
    """The step on its line of time: row, state and window by number, start and length in microseconds, texts."""
    segments = timeline(found)
    hidden = sum(segment.length for segment in segments if segment.state == "hidden")
    return {
        "total": found.step_time.microseconds,
        "text": format_seconds(found.step_time.seconds),
        "hidden": format_seconds(hidden / 1e6),
        "windows": list(_windows(found.step_time)),
        "segments": [
            [ROWS.index(one.row), STATES.index(one.state), WINDOWS.index(one.window), one.start, one.length,
             strings.number(one.term), format_seconds(one.length / 1e6)] for one in segments
        ],
    }  # fmt: skip


def _windows(step: StepTime) -> Iterator[list[int | str]]:
    """Number, start, length and time of each window that takes any."""
    start = 0
    for number, name in enumerate(WINDOWS):
        length = step.window(name)
        if length:
            yield [number, start, length, format_seconds(length / 1e6)]
        start += length


def configuration(found: Evaluation) -> str | None:
    """The DeepSpeed file of a plan that keeps every rule, where that is the runtime."""
    from planner.report import configuration_text

    if found.violations or found.job.runtime.runtime != "deepspeed":
        return None
    return configuration_text(found)
