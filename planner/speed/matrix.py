"""Seconds of one matrix product on one GPU, from the curves in `catalogs/efficiency/matrix.yaml`.

A curve gives the time of a product alone with random data; how much of its rate hours of training hold follows from
the card's power limit. A GPU that nobody measured takes the curve of its architecture with its own peak, bandwidth,
power limit and number of multiprocessors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.hardware import Gpu
from planner.speed.catalog import curve_name, efficiency, remembered, time_factor
from planner.units import parse_flops_rate, parse_seconds

# Precisions that run as another one of the catalog does; the result is bf16 where the operands are narrower.
SAME_CURVE: Mapping[str, str] = {"fp16": "bf16", "tf32": "bf16"}
OPERAND_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5625}
RESULT_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4}


@dataclass(frozen=True)
class MatrixCurve:
    """One GPU's products at one precision, in base units.

    `rate`: FLOP/s that training sustains on the largest shapes. `launch`: seconds of a product of nothing.
    `half_inner`: contraction that halves the rate. `wave`: cost of a part-filled wave, 0 to 1. `bandwidth`: bytes/s
    inside a product. `operand`, `result`: bytes per element.
    """

    rate: float
    launch: float
    half_inner: float
    wave: float
    bandwidth: float
    tile_rows: int
    tile_columns: int
    multiprocessors: int
    operand: float
    result: float

    def seconds(self, rows: float, columns: float, inner: float, batch: float) -> float:
        """Seconds of `batch` products of equal shape in one kernel."""
        tiles = -(-rows // self.tile_rows) * -(-columns // self.tile_columns) * batch
        waves = tiles / self.multiprocessors
        stretch = (1 + self.wave * (-(-waves // 1) / waves - 1)) * (1 + self.half_inner / inner)
        compute = 2.0 * rows * columns * inner * batch / self.rate * stretch
        elements = self.operand * inner * (rows + columns) + self.result * rows * columns
        traffic = batch * elements / self.bandwidth
        longer, shorter = max(compute, traffic), min(compute, traffic)
        return self.launch + float(longer * (1.0 + (shorter / longer) ** 4) ** 0.25)


def matrix_seconds(
    gpu: Gpu,
    peak: str,
    rows: float,
    columns: float,
    inner: float,
    outlook: str,
    batch: float = 1,
    aligned: bool = True,
) -> float:
    """Seconds of rows x inner times inner x columns at precision `peak`, a key of `Gpu.peak`; `batch` of them at once.

    `aligned`: every row in memory starts on 16 bytes (see `is_aligned`). 0 for an empty product. Raises InputError for
    an unknown outlook.
    """
    if rows <= 0 or columns <= 0 or inner <= 0 or batch <= 0:
        return 0.0
    curve, factor = curve_at(gpu, peak, outlook, aligned)
    return factor * curve.seconds(rows, columns, inner, batch)


def is_aligned(*sizes: float) -> bool:
    """Whether rows of these many 16-bit elements fill whole units of 16 bytes, which the fast kernels read."""
    return all(size % 8 == 0 for size in sizes)


@remembered
def curve_at(gpu: Gpu, peak: str, outlook: str, aligned: bool) -> tuple[MatrixCurve, float]:
    """The curve, slower where rows are not aligned, and the multiple of its time that `outlook` means."""
    curve, catalog = matrix_curve(gpu, peak), efficiency("matrix")
    by_rule = catalog["curves"][curve_name(gpu, catalog)].get("rule", False)
    factor = time_factor(catalog["outlook_of_rules" if by_rule else "outlook"], outlook)
    found = gpu.calibration
    factor *= found.narrow_products if OPERAND_BYTES[peak] < 2 else found.products
    share = 1.0 if aligned else catalog["misaligned"]["value"]
    return replace(curve, rate=curve.rate * share), factor


@remembered
def matrix_curve(gpu: Gpu, peak: str) -> MatrixCurve:
    """The curve of a GPU at a precision, with the GPU's own peak, bandwidth and power limit."""
    catalog = efficiency("matrix")
    name = curve_name(gpu, catalog)
    family = catalog["curves"][name]
    entry = catalog["fp32"] if peak == "fp32" else _entry(family, catalog["curves"]["any"], SAME_CURVE.get(peak, peak))
    return MatrixCurve(
        rate=gpu.peak[peak] * entry["efficiency"] * sustained(gpu, {**family["power"], **entry}),
        launch=parse_seconds(entry["launch"]),
        half_inner=entry["half_inner"],
        wave=entry["wave"],
        bandwidth=gpu.memory_bandwidth * entry["memory"],
        tile_rows=entry["tile"][0],
        tile_columns=entry["tile"][1],
        multiprocessors=(catalog["gpus"].get(gpu.key) or {}).get("multiprocessors", family["multiprocessors"]),
        operand=OPERAND_BYTES[peak],
        result=RESULT_BYTES.get(peak, 2),
    )


def _entry(family: Mapping[str, Any], other: Mapping[str, Any], precision: str) -> Mapping[str, Any]:
    """A precision's curve; that of any GPU where the family was not measured at it."""
    found: Mapping[str, Any] = family.get(precision) or other[precision]
    return found


def sustained(gpu: Gpu, power: Mapping[str, Any]) -> float:
    """Share of the short-run rate that hours of training hold, moved from the measured card to this power limit.

    `power`: a curve's entry, with what a precision says otherwise.
    """
    return min(1.0, float(power["sustained"]) * _more(gpu, power))


def power_share(gpu: Gpu) -> float:
    """Rate of this card over that of the measured card of its curve where the power limit is lower; at most 1."""
    catalog = efficiency("matrix")
    return min(1.0, _more(gpu, catalog["curves"][curve_name(gpu, catalog)]["power"]))


def _more(gpu: Gpu, power: Mapping[str, Any]) -> float:
    """What this card's watts per peak FLOP do to the rate at the limit, over the measured card's."""
    rate = gpu.peak.get("bf16") or gpu.peak.get("fp16")
    if gpu.power_watts is None or rate is None:
        return 1.0
    ratio = gpu.power_watts / power["watts"] * parse_flops_rate(power["peak"]) / rate
    return float(ratio ** efficiency("matrix")["power_exponent"]["value"])
