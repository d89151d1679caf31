"""Sentences of an explanation, one for each fact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.answer import changes
from planner.evaluate import Evaluation
from planner.explain.choices import Excess, Outcome, excesses
from planner.explain.conflicts import conflict
from planner.explain.limits import LimitReason, Purchase
from planner.explain.repairs import Repair
from planner.explain.traffic import Traffic, traffic
from planner.objective import gpu_hours
from planner.plan import Value
from planner.specification import specify
from planner.units import format_bandwidth, format_bytes, format_price, format_seconds

PLACES = {"gpu": "GPU", "host": "host memory", "nvme": "NVMe"}
MOST_LINES = 6  # of a ledger's peak that are shown
HIDDEN = "hidden by overlap"
TELLING = 0.25  # share of the added time from which a term is named


def pins_text(pins: Mapping[str, Value]) -> str:
    """`zero_stage 2, micro_batch 4`."""
    return ", ".join(f"{name} {value}" for name, value in pins.items())


def more_or_less(amount: float, text: str) -> str:
    """`1.2 s more`, `3.4 GiB less`; `text` is the size of the amount."""
    return f"{text} {'more' if amount > 0 else 'less'}"


def time_change(best: Evaluation, other: Evaluation) -> str:
    """How much longer a step of the other takes."""
    seconds = other.step_time.seconds - best.step_time.seconds
    return more_or_less(seconds, format_seconds(abs(seconds))) if seconds else "no more time"


def memory_change(best: Evaluation, other: Evaluation) -> str:
    """How much more memory of one GPU the other holds."""
    size = other.peak_bytes - best.peak_bytes
    return f"{more_or_less(size, format_bytes(abs(size)))} per GPU" if size else "the same memory per GPU"


def outcome_sentence(best: Evaluation, outcome: Outcome) -> str:
    """What pinned values cost, or why they cannot be."""
    named = pins_text(outcome.pins)
    if outcome.best is not None:
        other = outcome.best
        total = f"{format_seconds(other.step_time.seconds)} a step"
        return f"{named}: {time_change(best, other)} ({total}), {memory_change(best, other)}{_most_of_it(best, other)}"
    if outcome.miss is None:
        return f"{named}: cannot be: {', '.join(outcome.conflict)}"
    over = "; ".join(misses(outcome.miss))
    faster = outcome.miss.step_time.microseconds < best.step_time.microseconds
    gain = f"; {time_change(best, outcome.miss)} if it did" if faster else ""
    return f"{named}: does not fit: {over}{gain}"


def misses(miss: Evaluation) -> Iterator[str]:
    """Every device that a plan holds too much on, and the deadline that it misses."""
    yield from (excess_text(excess) for excess in excesses(miss))
    deadline = miss.job.limits.step_time_at_most
    if deadline is not None and miss.step_time.microseconds > deadline:
        over = (miss.step_time.microseconds - deadline) / 1e6
        yield f"{format_seconds(over)} over the deadline (step_time_is_within_the_deadline)"


def excess_text(excess: Excess) -> str:
    """How much is over, where and when, and which constraint says so."""
    return f"{format_bytes(excess.bytes)} over on {PLACES[excess.device]} in {excess.phase} ({excess.constraint})"


def _most_of_it(best: Evaluation, other: Evaluation) -> str:
    """The term that grew the most, with its link and bytes where it is a collective, and what overlap changes."""
    added = other.step_time.seconds - best.step_time.seconds
    if added <= 0:
        return ""
    before, after = best.step_time.terms, other.step_time.terms
    grown = {name: seconds - before.get(name, 0.0) for name, seconds in after.items() if name != HIDDEN}
    name, seconds = max(grown.items(), key=lambda item: item[1])
    if seconds < TELLING * added:
        return _overlap(best, other)
    sent = next((item for item in traffic(other) if item.name == name), None)
    over = f", {format_bytes(sent.bytes)} over {sent.link}" if sent and sent.bytes else ""
    return f"; {name} takes {format_seconds(seconds)} more{over}{_overlap(best, other)}"


def _overlap(best: Evaluation, other: Evaluation) -> str:
    """How much more or less overlap hides."""
    seconds = (other.step_time.hidden - best.step_time.hidden) / 1e6
    return f"; overlap hides {more_or_less(seconds, format_seconds(abs(seconds)))}" if seconds else ""


def changed_sentence(best: Evaluation, other: Evaluation) -> str:
    """What else a plan changes."""
    return pins_text(changes(best.values, other.values)) or "nothing"


def traffic_sentence(sent: Traffic) -> str:
    """One exchange: bytes, link, seconds."""
    rate = f"{sent.bandwidth * 8 / 1e9:g} Gbit/s" if sent.network else format_bandwidth(sent.bandwidth)
    over = f"over {sent.link} at {rate} for each GPU: {format_seconds(sent.seconds)}"
    if sent.bytes is None:
        return f"{sent.name}: {over}"
    times = f"{sent.rounds} times" if sent.rounds != 1 else "once"
    return f"{sent.name} ({sent.operation}, {times} a step): {format_bytes(sent.bytes)} {over}"


def limit_sentence(best: Evaluation, reason: LimitReason) -> str:
    """Whether a limit binds, and what more would buy."""
    free = f"{format_bytes(reason.free)} of {format_bytes(reason.capacity)} free"
    if reason.unlimited is None:
        return f"{reason.constraint} does not bind ({free}): no plan is better without it"
    parts = [f"without it {format_seconds(reason.unlimited.step_time.seconds)} a step"]
    if reason.next is not None:
        parts.append(f"{format_bytes(reason.next_bytes)} more would buy {_gain(best, reason.next)}")
    if reason.one_more is not None:
        parts.append(f"one GiB more: {_gain(best, reason.one_more)}")
    return f"{reason.constraint} binds ({free}): {'; '.join(parts)}"


def _gain(best: Evaluation, other: Evaluation) -> str:
    """What a better plan saves."""
    seconds = best.step_time.seconds - other.step_time.seconds
    return f"{format_seconds(seconds)} less a step" if seconds > 0 else "nothing"


def purchase_sentence(best: Evaluation, purchase: Purchase) -> str:
    """What more machines or bandwidth buy, and what a token then costs."""
    other = purchase.best
    if other is None:
        return f"{purchase.what}: no plan: {', '.join(conflict(specify(purchase.job)))}"
    more = gpu_hours(other, 1) / gpu_hours(best, 1) - 1
    cost = f"{abs(more):.1%} {'more' if more > 0 else 'less'} GPU time per token"
    return f"{purchase.what}: {time_change(best, other)} ({format_seconds(other.step_time.seconds)} a step), {cost}"


def repair_sentence(repair: Repair) -> str:
    """One repair with its cost and plan."""
    best = repair.best
    return (
        f"{repair.change}: {repair.cost:,.0f} GPU-hours per 10^9 tokens, {format_seconds(best.step_time.seconds)} a "
        f"step, {format_bytes(best.peak_bytes)} per GPU, {format_bytes(best.ledger['host'].peak.total)} per host"
        f"{_price(repair)}"
    )


def _price(repair: Repair) -> str:
    """What another GPU costs, since its hours are not those of the job's."""
    price = repair.best.job.cluster.gpu_price_per_hour
    return f", at {format_price(price)} for each GPU" if repair.kind == "gpu" and price is not None else ""


def miss_lines(miss: Evaluation) -> Iterator[str]:
    """The nearest miss line by line: for each device over its limit the largest lines of its peak."""
    for excess in excesses(miss):
        yield excess_text(excess)
        peak = miss.ledger[excess.device].peak
        lines = sorted(peak.lines, key=lambda line: -line.bytes)
        for line in lines[:MOST_LINES]:
            yield f"  {format_bytes(line.bytes):>10}  {line.name} ({line.book.replace('_', ' ')})"
        if len(lines) > MOST_LINES:
            rest = sum(line.bytes for line in lines[MOST_LINES:])
            yield f"  {format_bytes(rest):>10}  {len(lines) - MOST_LINES} more lines"
    limits = {limit.constraint for limit in specify(miss.job).limits.values()}
    for violation in miss.violations:
        if violation.constraint not in limits:
            yield f"{violation.constraint}: {violation.because}"
