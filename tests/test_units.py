"""Quantities: exact reading, refusal by dimension, sign and size, whole messages, and formatting."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from planner import units
from planner.units import Mistake, parse_ratio

SIZE = "expected a memory size such as 80 GiB"
BANDWIDTH = "expected a bandwidth such as 25 GB/s or 200 Gbit/s"
COUNT = "expected a whole number such as 4096, 7e9 or 7B"


@pytest.mark.parametrize(
    ("parse", "value", "base"),
    [
        (units.parse_bytes, "80 GiB", 85_899_345_920),  # 80 * 1024^3
        (units.parse_bytes, "80GB", 80_000_000_000),
        (units.parse_bytes, " 512 B ", 512),
        (units.parse_bytes, "1.5 KiB", 1536),
        (units.parse_bytes, "3.84 TB", 3_840_000_000_000),  # exact, no float near it
        (units.parse_bytes, "0 B", 0),
        (units.parse_bandwidth, "2039 GB/s", 2.039e12),
        (units.parse_bandwidth, "200 Gbit/s", 25e9),  # 200e9 / 8
        (units.parse_bandwidth, "1 GiB/s", 1_073_741_824.0),
        (units.parse_flops_rate, "989 TFLOP/s", 9.89e14),
        (units.parse_flop, "6 TFLOP", 6e12),
        (units.parse_seconds, "10 us", 1e-5),
        (units.parse_seconds, "10 µs", 1e-5),
        (units.parse_seconds, "2 hours", 7200.0),
        (units.parse_price, "98.32 USD/hour", 98.32),
        (units.parse_count, 7e9, 7_000_000_000),
        (units.parse_count, "7B", 7_000_000_000),
        (units.parse_count, "1e9", 1_000_000_000),
        (units.parse_count, "6.738 B", 6_738_000_000),
        (units.parse_count, 4096, 4096),
        (units.parse_number, 0.5, 0.5),
    ],
)
def test_reads_into_base_units(parse: Callable[[Any], float], value: object, base: float) -> None:
    assert parse(value) == base


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (units.parse_bytes, "80 GIB", f"'80 GIB' has the unknown unit 'GIB'; {SIZE}; did you mean 'GiB'?"),
        (units.parse_bytes, "80 gb", f"'80 gb' has the unknown unit 'gb'; {SIZE}; did you mean 'GB'?"),
        (units.parse_bytes, "80 GB/s", f"'80 GB/s' is a bandwidth; {SIZE}"),
        (units.parse_bytes, "80", f"'80' has no unit; {SIZE}"),
        (units.parse_bytes, 80, f"80 has no unit; {SIZE}"),
        (units.parse_bytes, None, f"no value is given; {SIZE}"),
        (units.parse_bytes, True, f"true is a truth value; {SIZE}"),
        (units.parse_bytes, [80], f"a list stands here; {SIZE}"),
        (units.parse_bytes, "lots", f"'lots' does not start with a number; {SIZE}"),
        (units.parse_bytes, "-1 GiB", f"'-1 GiB' is negative; {SIZE}"),
        (units.parse_bytes, "1e30 B", f"'1e30 B' is beyond the largest value taken here, 1e+18; {SIZE}"),
        (units.parse_bytes, "1e999999999 B", f"'1e999999999' is beyond every value taken here; {SIZE}"),
        (units.parse_bytes, "٣ GiB", f"'٣ GiB' does not start with a number; {SIZE}"),
        (units.parse_bandwidth, "80 GiB", f"'80 GiB' is a memory size; {BANDWIDTH}"),
        (
            units.parse_bandwidth,
            "200 Gb/s",
            f"'200 Gb/s' has the unknown unit 'Gb/s'; {BANDWIDTH}; did you mean 'Gbit/s'?",
        ),
        (
            units.parse_bandwidth,
            "100 Gbps",
            f"'100 Gbps' has the unknown unit 'Gbps'; {BANDWIDTH}; did you mean 'Gbit/s'?",
        ),
        (
            units.parse_flops_rate,
            "989 TFLOPS",
            "'989 TFLOPS' has the unknown unit 'TFLOPS'; expected a compute rate such as 989 TFLOP/s; "
            "did you mean 'TFLOP/s'?",
        ),
        (
            units.parse_flops_rate,
            "989 TFLOP",
            "'989 TFLOP' is an amount of compute; expected a compute rate such as 989 TFLOP/s",
        ),
        (
            units.parse_seconds,
            "10 sec",
            "'10 sec' has the unknown unit 'sec'; expected a time such as 10 us or 1.5 s; did you mean 's'?",
        ),
        (
            units.parse_price,
            "98 $/h",
            "'98 $/h' has the unknown unit '$/h'; expected a price such as 98.32 USD/hour; did you mean 'USD/hour'?",
        ),
        (units.parse_count, "10^30", f"'10^30' is not written as a number and a unit; {COUNT}"),
        (units.parse_count, "1,000", f"'1,000' is not written as a number and a unit; {COUNT}"),
        (units.parse_count, "1_000", f"'1_000' is not written as a number and a unit; {COUNT}"),
        (units.parse_count, "7 GB", f"'7 GB' is a memory size; {COUNT}"),
        (units.parse_count, "7b", f"'7b' is not a count; {COUNT}; did you mean 'B'?"),
        (units.parse_count, 1.5, f"1.5 is not a whole number; {COUNT}"),
        (units.parse_count, float("nan"), f"nan is not a finite number; {COUNT}"),
        (units.parse_count, float("inf"), f"inf is not a finite number; {COUNT}"),
        (
            units.parse_count,
            10**400,
            f"a number of more than 60 digits is beyond the largest value taken here, 1e+18; {COUNT}",
        ),
        (units.parse_number, "1", "'1' is text; expected a number"),
        (units.parse_number, -0.5, "-0.5 is negative; expected a number, 0 or more"),
    ],
)
def test_refuses_with_the_whole_message(parse: Callable[[Any], float], value: object, message: str) -> None:
    with pytest.raises(Mistake) as caught:
        parse(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("parse", "zero"),
    [
        (units.parse_bytes, "0 B"),
        (units.parse_bandwidth, "0 GB/s"),
        (units.parse_flops_rate, "0 FLOP/s"),
        (units.parse_seconds, "0 s"),
        (units.parse_price, "0 USD/hour"),
        (units.parse_count, 0),
        (units.parse_number, 0.0),
    ],
)
def test_zero_only_where_allowed(parse: Callable[..., float], zero: object) -> None:
    assert parse(zero) == 0
    with pytest.raises(Mistake, match="is zero"):
        parse(zero, positive=True)


def test_bound_of_a_count() -> None:
    assert units.parse_count(8, largest=8) == 8
    with pytest.raises(Mistake, match="^9 is beyond the largest value taken here, 8;"):
        units.parse_count(9, largest=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(84_932_984_832), "79.1 GiB"),  # 84932984832 / 1024^3 = 79.1
        (units.format_bytes(512), "512 B"),
        (units.format_bytes(-1_048_576), "-1.0 MiB"),
        (units.format_bytes(3 * units.TIB), "3.0 TiB"),
        (units.format_seconds(1.234), "1.23 s"),
        (units.format_seconds(0.0045), "4.5 ms"),
        (units.format_seconds(1e-5), "10 us"),
        (units.format_seconds(0), "0 s"),
        (units.format_seconds(100), "100 s"),
        (units.format_seconds(300), "5 min"),
        (units.format_seconds(90_000), "25 h"),
        (units.format_count(6_738_415_616), "6.74 B"),
        (units.format_count(4096), "4096"),
        (units.format_count(405e9), "405 B"),
        (units.format_bandwidth(2.039e12), "2.04 TB/s"),
        (units.format_bandwidth(25e9), "25 GB/s"),
        (units.format_flops_rate(989e12), "989 TFLOP/s"),
        (units.format_price(98.32), "98.32 USD/hour"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    assert text == expected


def test_nearest_spelling() -> None:
    assert units.nearest("sequence_lenght", ["sequence_length", "global_batch"]) == "did you mean 'sequence_length'?"
    assert units.nearest("BF16", ["fp16", "bf16"]) == "did you mean 'bf16'?"
    assert units.nearest("zzz", ["fp16", "bf16"]) == ""


@pytest.mark.parametrize(
    ("value", "found"),
    [("1/4", Fraction(1, 4)), (" 3 / 8 ", Fraction(3, 8)), ("0.51587", Fraction("0.51587")), (2, Fraction(2))],
)
def test_ratios_are_exact(value: object, found: Fraction) -> None:
    assert parse_ratio(value, largest=10) == found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1/0", "'1/0' is no number; expected a number, or a quotient such as 1/4"),
        ("11/1", "'11/1' is beyond the largest value taken here, 10; expected a number, or a quotient such as 1/4"),
        ("1k", "'1k' is no number; expected a number, or a quotient such as 1/4"),
        (
            "1e999999999",
            "'1e999999999' is beyond every value taken here; expected a whole number such as 4096, 7e9 or 7B",
        ),
        (True, "true is a truth value; expected a whole number such as 4096, 7e9 or 7B"),
    ],
)
def test_ratios_that_are_none(value: object, message: str) -> None:
    with pytest.raises(Mistake) as caught:
        parse_ratio(value, largest=10)
    assert str(caught.value) == message
