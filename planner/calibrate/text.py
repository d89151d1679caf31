"""The answer of `planner calibrate`: the overlay file, a summary for people, and JSON-ready data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.calibrate.calibrating import Calibrated
from planner.calibrate.groups import groups
from planner.calibrate.overlay_file import KEY, Entry, Figure

_HEAD = """# Times and margins of machines as measured, for planner solve JOB --catalog THIS_FILE.
# `times` multiplies what the catalogs give, `seconds` is added; `error` is the standard error, of a multiple relative.
"""


def overlay_text(found: Calibrated) -> str:
    """The overlay file; reading it gives the same entries."""
    import yaml

    data = {KEY: [_plain(entry) for entry in found.entries]}
    return _HEAD + str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110))


def calibrate_answer(found: Calibrated) -> dict[str, Any]:
    """The entries, and skipped runs by reason."""
    return {KEY: [_plain(entry) for entry in found.entries], "skipped": dict(found.skipped)}


def calibrate_text(found: Calibrated) -> str:
    """The summary for people."""
    parts = ["\n".join(_entry(entry)) for entry in found.entries]
    if found.skipped:
        parts.append("\n".join(["skipped", *(f"  {count}  {reason}" for reason, count in found.skipped.items())]))
    return "\n\n".join(parts) + "\n"


def _plain(entry: Entry) -> dict[str, Any]:
    """An entry as plain data without what it does not say."""
    data: dict[str, Any] = entry.model_dump(exclude_defaults=True)
    if "measured" in data:
        data["measured"] = [dict(row) for row in data["measured"]]
    return data


def _entry(entry: Entry) -> Iterable[str]:
    """One machine's lines."""
    yield f"{entry.gpu}, {entry.runtime or 'all runtimes'}: {_runs(entry)}"
    if entry.error is not None:
        before, after = 100 * entry.error.before, 100 * entry.error.after
        yield f"  step time off by {before:.1f} % before and {after:.1f} % after, on these runs themselves"
    means = {group.name: group.means for group in groups()}
    width = max(map(len, means.values()))
    for name, figure in entry.time.items():
        yield f"  {means[name]:<{width}}  {_figure(figure)}"
    if entry.memory is not None and entry.memory.fragmentation is not None:
        yield f"  {'reserved over allocated':<{width}}  {entry.memory.fragmentation:.3f}"
    if entry.memory is not None and entry.memory.reserve_bytes is not None:
        yield f"  {'device beside the ledger':<{width}}  + {entry.memory.reserve_bytes / 2**20:.0f} MiB"
    yield from _cannot_tell(entry.cannot_tell, means)


def _runs(entry: Entry) -> str:
    if not entry.runs:
        return "sweeps"
    return "1 run" if entry.runs == 1 else f"{entry.runs} runs"


def _figure(figure: Figure) -> str:
    if figure.times is None:
        return f"+ {figure.seconds or 0.0:.3g} ± {figure.error:.2g} s"
    return f"× {figure.times:.3f} ± {100 * figure.error:.0f} %"


def _cannot_tell(reasons: Mapping[str, str], means: Mapping[str, str]) -> Iterable[str]:
    """What stays as the catalogs say, and why."""
    if reasons:
        yield "  cannot tell"
    for name, reason in reasons.items():
        yield f"    {means.get(name, name.replace('_', ' '))}: {reason}"
